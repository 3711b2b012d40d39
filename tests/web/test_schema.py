"""The schema of the API: complete, and no request that follows it, or breaks it, makes the server fail."""

from typing import Any

import pytest
from hypothesis.errors import Unsatisfiable
from tests.tiny import model_of, wordpiece
from tests.web.calling import HOST, Caller, make_caller, text_request

import whichtoken as wt
from whichtoken.web.app import make_app
from whichtoken.web.limits import Access, Limits
from whichtoken.web.service import make_service

NAMES = ("target", "token", "removal", "methods", "method", "columns", "label", "id")  # random ones are unknown
PATHS = {
    "/health": {"get"},
    "/metrics": {"get"},
    "/api/info": {"get"},
    "/api/predict": {"post"},
    "/api/explain": {"post"},
    "/api/curves": {"post"},
    "/api/review": {"post"},
    "/api/jobs/{job}": {"delete"},
    "/api/render": {"post"},
    "/api/open": {"post"},
    "/api/export": {"post"},
    "/api/benchmark": {"get"},
    "/api/benchmark/disagreements": {"get"},
}


def test_every_route_has_its_request_replies_and_errors(caller: Caller) -> None:
    schema = caller.get("/api/openapi.json").json
    assert {path: set(of) for path, of in schema["paths"].items()} == PATHS
    for path, of in schema["paths"].items():
        for method, operation in of.items():
            content = next(iter(operation["responses"].items()))[1].get("content", {})
            assert method == "delete" or content, f"{path} says what it replies"
            assert {"400", "401", "403", "413", "422", "429", "500"} <= set(operation["responses"])
            assert ("requestBody" in operation) == (method == "post")
    components = schema["components"]["schemas"]
    assert {"Attribution", "ResultView", "CellView", "PredictReply", "ErrorReply"} <= set(components)
    assert components["PredictRequest"]["additionalProperties"] is False


def test_replies_have_the_fields_of_the_schema(caller: Caller) -> None:
    from jsonschema import Draft202012Validator

    schema = caller.get("/api/openapi.json").json
    events = caller.post("/api/explain", text_request(methods=["posterior"], layers=True)).events
    replies = {
        "InfoReply": caller.get("/api/info").json,
        "PredictReply": caller.post("/api/predict", text_request(off=[1])).json,
        "ErrorReply": caller.get("/nothing").json,
    }
    for name, reply in events:
        if name == "result":
            reply["result"]["record"].pop("record")
            reply["result"]["record"].pop("schema")
            replies["MethodReply"] = reply
    for name, reply in replies.items():
        validator = Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": schema["components"]})
        assert not list(validator.iter_errors(reply)), name


def test_names_of_models_are_escaped_in_the_metrics() -> None:
    subject = wt.Subject(model_of("bert"), wordpiece(), name='a "b"\\c\nd')
    service = make_service([subject])
    text = Caller(make_app(service, Access()), service).get("/metrics").body.decode()
    assert r'whichtoken_jobs{model="a \"b\"\\c\nd"} 0' in text.splitlines()
    service.stop()


@pytest.mark.slow
def test_no_request_makes_the_server_fail() -> None:
    """schemathesis writes requests by the schema, and others that break it."""
    import schemathesis
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

    limits = Limits(text_characters=200, csv_rows=5, jobs=8, methods=2, job_seconds=20)
    caller = make_caller(limits, names=["texts", "images"])
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", caller.app, headers={"host": HOST})
    served, statuses = ["texts", "images"], dict[str, set[int]]()
    checks = [not_a_server_error, status_code_conformance, content_type_conformance]

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def call(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):  # so that requests come further
            case.body["model"] = served[len(case.body["model"]) % 2]
            for name in NAMES if case.body["model"] == "texts" else ():
                case.body.pop(name, None)
        response = case.call(base_url=f"http://{HOST}", headers={"host": HOST})
        statuses.setdefault(case.path, set()).add(response.status_code)
        case.validate_response(response, checks=checks)

    operations: Any = schema.get_all_operations()
    for operation in (found.ok() for found in operations):
        for mode in schemathesis.GenerationMode:
            try:
                given(case=operation.as_strategy(generation_mode=mode))(call)()
            except Unsatisfiable:
                assert mode is schemathesis.GenerationMode.NEGATIVE, "a request without parameters cannot be wrong"
    assert {200, 400, 422} <= statuses["/api/predict"]
    assert {200, 400, 422} <= statuses["/api/explain"]
    assert max(max(of) for of in statuses.values()) < 500
    assert "whichtoken_errors_total" not in caller.get("/metrics").body.decode()
    caller.service.stop()
