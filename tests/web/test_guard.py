"""Who may call the server, and what every reply says to the browser."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.web.calling import HOST, Caller, SlowClicks, make_caller, text_request

from whichtoken.errors import UsageError
from whichtoken.web.guard import PAGE_POLICY
from whichtoken.web.limits import Access, Limits, choose_token

TOKEN = "a secret of twenty-one"


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "127.9.9.9:1"])
def test_this_computer_may_be_called_by_any_of_its_names(caller: Caller, host: str) -> None:
    assert caller.get("/health", host=host).json == {"status": "ok"}


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[::1", "", "a b"),
        *("localhost@evil.example", "evil.example@localhost", "evil.example:80@localhost:8080", "@localhost"),
        *("localhost.evil.example", "localhost.evil.example:8080", "evil.localhost", "notlocalhost", "localhost."),
        *("128.0.0.1", "0.0.0.0", "[::2]", "localhost/path", "localhost?a", "localhost:x", "2130706433"),
    ],
)
def test_another_name_is_refused_because_it_may_be_a_rebound_one(caller: Caller, host: str) -> None:
    reply = caller.get("/api/info", host=host)
    assert (reply.status, reply.error) == (403, "UnknownHost")


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "content-type", "content-length"])
def test_a_header_that_decides_something_is_given_once(caller: Caller, name: str) -> None:
    """Even with the same value, and in other letters: the next reader may take either."""
    value = {"host": HOST, "origin": f"http://{HOST}", "content-type": "application/json"}.get(name, "1")
    given = (name.title().encode(), value.encode())
    body = json.dumps(text_request()).encode()
    usual = {} if name in ("host", "content-type") else {name: value}
    reply = caller.call("POST", "/api/predict", body, headers=usual, raw=[given])
    assert (reply.status, reply.error) == (400, "RepeatedHeader")
    assert name in reply.json["error"]["message"]
    assert caller.call("POST", "/api/predict", body, raw=[(b"accept", b"a"), (b"accept", b"b")]).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": f"http://{HOST}.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_post_from_another_page_is_refused(caller: Caller, headers: dict[str, str]) -> None:
    reply = caller.post("/api/predict", text_request(), **headers)
    assert (reply.status, reply.error) == (403, "ForeignPage")
    cancelled = caller.call("DELETE", "/api/jobs/any", headers=headers)
    assert (cancelled.status, cancelled.error) == (403, "ForeignPage")


@pytest.mark.parametrize("headers", [{}, {"origin": f"http://{HOST}", "sec_fetch_site": "same-origin"}])
def test_a_post_from_its_own_page_or_from_a_program_is_served(caller: Caller, headers: dict[str, str]) -> None:
    assert caller.post("/api/predict", text_request(), **headers).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_a_form_could_send_is_refused(caller: Caller, kind: str) -> None:
    reply = caller.post("/api/predict", text_request(), content_type=kind)
    assert (reply.status, reply.error) == (415, "NotJson")


def test_beyond_this_computer_a_token_is_needed() -> None:
    with pytest.raises(UsageError, match="can be reached from other computers"):
        Access("0.0.0.0")
    with pytest.raises(UsageError, match="at least 16"):
        Access("0.0.0.0", token="short")
    assert choose_token(None) is None
    made = choose_token("new")
    assert made is not None
    assert made != choose_token("new")
    assert Access("192.0.2.7", 80, made).address == f"http://192.0.2.7:80/#token={made}"
    caller = make_caller(access=Access("192.0.2.7", token=TOKEN, names=("explain.example",)))
    hosts = {"host": "explain.example"}
    for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}, {"authorization": TOKEN}):
        for path in ("/api/info", "/metrics", "/api/openapi.json", "/benchmark", "/corpus", "/nothing"):
            reply = caller.get(path, **hosts, **given)
            assert (reply.status, reply.error) == (401, "TokenNeeded"), path
        assert caller.post("/api/predict", text_request(), **hosts, **given).status == 401
    assert caller.get("/health", **hosts).status == 200
    assert caller.get("/api/shades.css", **hosts).status == 200
    assert caller.get("/api/info", **hosts, authorization=f"Bearer {TOKEN}").status == 200
    assert caller.get("/api/info", host="192.0.2.7", authorization=f"bearer {TOKEN}").status == 200
    assert caller.get("/api/info", host="other.example", authorization=f"Bearer {TOKEN}").status == 403
    caller.service.stop()


def test_every_reply_tells_the_browser_to_run_no_script_but_its_own(caller: Caller) -> None:
    replies = [
        caller.get("/"),
        caller.get("/api/info"),
        caller.get("/nothing"),
        caller.get("/api/info", host="evil.example"),
        caller.post("/api/predict", {}),
        caller.post("/api/explain", text_request(methods=["attcat"])),
    ]
    for reply in replies:
        assert reply.headers["content-security-policy"] == PAGE_POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["cache-control"] == "no-store"
        assert not any("access-control" in name for name in reply.headers)
    assert "unsafe" not in PAGE_POLICY
    assert "script-src 'self';" in PAGE_POLICY


def test_a_body_over_the_limit_is_not_read_to_its_end() -> None:
    caller = make_caller(Limits(body_bytes=1000))
    said = caller.call("POST", "/api/predict", b"{}", headers={"content-length": "1001"})
    assert (said.status, said.error) == (413, "TooLarge")
    pieces = [b" " * 400] * 10
    sent = caller.call("POST", "/api/predict", pieces)
    assert (sent.status, sent.error) == (413, "TooLarge")
    assert caller.call("POST", "/api/predict", b"{}", headers={"content-length": "9" * 5000}).status == 413
    assert caller.call("POST", "/api/predict", b"{}", headers={"content-length": "1000"}).status == 422
    caller.service.stop()


def test_a_body_that_never_ends_is_not_waited_for(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = asyncio.timeout
    monkeypatch.setattr("whichtoken.web.guard.asyncio.timeout", lambda seconds: timeout(0))
    reply = caller.call("POST", "/api/predict", b"{", hangs=True)
    assert (reply.status, reply.error) == (408, "TooSlow")


@contextmanager
def served(caller: Caller, clicks: SlowClicks, address: str, size: int = 0) -> Iterator[None]:
    """Keep the server busy with a request of this address, whose body has about this size."""
    body = b" " * size + json.dumps(text_request()).encode()
    with ThreadPoolExecutor(1) as other:
        first = other.submit(caller.call, "POST", "/api/predict", body, address=address)
        try:
            assert clicks.entered.wait(60)
            yield
        finally:
            clicks.release.set()
    assert first.result().status == 200


def test_only_so_many_requests_of_one_address_are_served(clicks: SlowClicks) -> None:
    caller = make_caller(Limits(address_connections=1))
    with served(caller, clicks, "192.0.2.9"):
        refused = caller.call("GET", "/api/info", address="192.0.2.9")
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (429, "TooManyRequests", "1")
        assert "192.0.2.9" in refused.json["error"]["message"]
        assert caller.call("GET", "/health", address="192.0.2.9").status == 200
        assert caller.call("GET", "/api/info", address="192.0.2.10").status == 200
    assert caller.call("GET", "/api/info", address="192.0.2.9").status == 200
    caller.service.stop()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_requests_of_this_computer_may_all_come_from_one_proxy(clicks: SlowClicks, address: str) -> None:
    caller = make_caller(Limits(address_connections=1))
    with served(caller, clicks, address):
        assert caller.call("GET", "/api/info", address=address).status == 200
    caller.service.stop()


def test_only_so_many_requests_of_all_are_served_but_health_always(clicks: SlowClicks) -> None:
    caller = make_caller(Limits(connections=1))
    with served(caller, clicks, "127.0.0.1"):
        for address in ("127.0.0.1", "192.0.2.9"):
            refused = caller.call("GET", "/api/info", address=address)
            assert (refused.status, refused.error, refused.headers["retry-after"]) == (503, "Busy", "1")
            assert caller.call("GET", "/health", address=address).status == 200
    assert caller.get("/api/info").status == 200
    caller.service.stop()


def test_a_request_that_is_refused_holds_no_place() -> None:
    caller = make_caller(Limits(connections=1), Access("192.0.2.7", token=TOKEN))
    for _ in range(2):
        assert caller.post("/api/predict", text_request()).error == "TokenNeeded"
        assert caller.post("/api/predict", {}, authorization=f"Bearer {TOKEN}", content_type="text/plain").status == 415
    assert caller.get("/api/info", authorization=f"Bearer {TOKEN}").status == 200
    caller.service.stop()


def test_the_bodies_of_all_requests_together_are_limited(clicks: SlowClicks) -> None:
    caller = make_caller(Limits(body_bytes=200_000, bodies_bytes=300_000))
    large = [b" " * 100_000, b" " * 80_000, b"{}"]
    with served(caller, clicks, "127.0.0.1", 180_000):
        refused = caller.call("POST", "/api/predict", large)
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (503, "TooManyBytes", "1")
        assert "300,000 bytes" in refused.json["error"]["message"]
        assert caller.call("POST", "/api/predict", large[:1]).status == 422, "there is room for this one"
        assert caller.call("POST", "/api/predict", [*large[:1], b" " * 15_000]).status == 422, "they do not add up"
    assert caller.call("POST", "/api/predict", large).status == 422
    caller.service.stop()


def test_a_small_body_is_accepted_however_many_bytes_others_hold(clicks: SlowClicks) -> None:
    caller = make_caller(Limits(body_bytes=200_000, bodies_bytes=1))
    with served(caller, clicks, "127.0.0.1", 190_000):
        assert caller.call("POST", "/api/predict", b" " * 60_000).status == 422
        assert caller.call("POST", "/api/predict", b" " * 70_000).status == 503
    caller.service.stop()


def test_the_bytes_of_a_body_are_given_back_when_its_caller_leaves() -> None:
    caller, has_left = make_caller(Limits(body_bytes=200_000, bodies_bytes=200_000)), threading.Event()
    has_left.set()
    pieces = [b" " * 90_000, b" " * 90_000]
    for _ in range(3):
        with pytest.raises(KeyError):  # no reply
            caller.call("POST", "/api/predict", pieces, leave_when=has_left, hangs=True)
    assert caller.call("POST", "/api/predict", pieces).status == 422
    caller.service.stop()


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%2e%2e/app.py", "/static/"]
)
def test_no_file_outside_the_page_is_served(caller: Caller, path: str) -> None:
    assert caller.get(path).status in (404, 405)


def test_the_documentation_that_loads_scripts_from_elsewhere_is_off(caller: Caller) -> None:
    assert caller.get("/docs").status == caller.get("/redoc").status == 404
