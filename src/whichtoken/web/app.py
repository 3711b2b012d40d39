"""The application: routes and error replies. Each route reads a request, calls the library and replies."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from whichtoken import __version__
from whichtoken.errors import WhichTokenError
from whichtoken.render.theme import page_colours, shade_rules
from whichtoken.web.benchmarks import StoredBenchmark, benchmark_reply, disagreements_reply
from whichtoken.web.counters import prometheus_text
from whichtoken.web.drawing import plan_curves
from whichtoken.web.encoding import to_bytes
from whichtoken.web.explaining import plan_explaining, view_of
from whichtoken.web.failures import describe_error, note_unexpected
from whichtoken.web.guard import REPORT_POLICY, AsgiApp, Guard
from whichtoken.web.limits import Access, Refusal
from whichtoken.web.replies import (
    BenchmarkReply,
    DisagreementsReply,
    ErrorReply,
    ErrorText,
    HealthReply,
    InfoReply,
    MethodReply,
    OpenReply,
    PredictReply,
    RenderReply,
)
from whichtoken.web.reviewing import plan_review
from whichtoken.web.saved import TYPES, export, open_file, render
from whichtoken.web.schema import (
    CurvesRequest,
    ExplainRequest,
    ExportRequest,
    Name,
    OpenRequest,
    PredictRequest,
    RenderRequest,
    ReviewRequest,
)
from whichtoken.web.service import Service
from whichtoken.web.streams import EventStream, wait_until_left
from whichtoken.web.switching import plan_switching, switch
from whichtoken.web.traffic import Traffic

STATIC = Path(__file__).parent / "static"
_ERROR = f"#/components/schemas/{ErrorReply.__name__}"
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": "Refused.", "content": {"application/json": {"schema": {"$ref": _ERROR}}}}
    for status in (400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 500, 503)
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {EventStream.media_type: {"schema": {"type": "string"}}}, "description": "The events of the job."}
}
router = APIRouter(responses=ERRORS)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Current = Annotated[Service, Depends(_service)]


def make_app(service: Service, access: Access) -> AsgiApp:
    """Return the application behind its guard."""
    app = FastAPI(
        title="whichtoken",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # it loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), "static")
    handlers: dict[Any, Callable[[Request, Any], Response]] = {
        WhichTokenError: _reply_own,
        RequestValidationError: _reply_invalid,
        HTTPException: _reply_http,
        Exception: _reply_unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    return Guard(app, access, service.limits, service.counters, Traffic(service.limits))


@router.get("/", include_in_schema=False)
def page() -> Response:
    if not (STATIC / "index.html").is_file():
        raise Refusal(404, "NotFound", "the page is not installed; the API is below /api, see /api/openapi.json")
    return FileResponse(STATIC / "index.html")


@router.get("/api/shades.css", include_in_schema=False)
def shades() -> Response:
    """Return the colours of scores, the same as on all other pages."""
    return Response(page_colours() + shade_rules(), media_type="text/css")


@router.get("/health", response_model=HealthReply, responses={503: {"model": ErrorReply}})
async def health(service: Current) -> Response:  # async: threads for requests may all be busy
    service.check_health()
    return _reply(HealthReply("ok"))


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(service: Current) -> Response:
    """Return counts of requests and jobs, as Prometheus reads them."""
    text = prometheus_text(service.counters, service.gauges())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@router.get("/api/info", response_model=InfoReply)
def info(service: Current) -> Response:
    """Return the models, their methods and the limits."""
    return _reply(service.info)


@router.post("/api/predict", response_model=PredictReply)
async def predict(asked: PredictRequest, request: Request, service: Current) -> Response:
    """Return the output for an input, whole and with parts switched off."""
    service.check_running()
    model = service.model(asked.model)
    with service.place_of_click():
        job = await asyncio.to_thread(plan_switching, model, asked, service.limits)
        return _reply(await _click(request, model.clicks, switch, job))


async def _click(request: Request, thread: Any, work: Callable[..., Any], *parts: Any) -> Any:
    """Do some work in a thread; it ends with its next pass when the caller leaves."""
    service, has_left = _service(request), Event()
    leaving = asyncio.create_task(wait_until_left(request.receive))
    try:
        working = asyncio.get_running_loop().run_in_executor(thread, service.watch_click, has_left, work, *parts)
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Refusal(499, "CallerLeft", "the caller disconnected before the reply was ready")
            return await working
        finally:
            has_left.set()
            working.cancel()
    except (RuntimeError, asyncio.CancelledError):  # the thread has ended, or is to end
        service.check_running()
        raise
    finally:
        leaving.cancel()


@router.post("/api/explain", status_code=200, response_class=EventStream, responses=STREAM)
async def explain(asked: ExplainRequest, service: Current) -> Response:
    """Explain an input: one event for each method, as soon as it is there."""
    service.check_free()
    work = await asyncio.to_thread(plan_explaining, service.model(asked.model), asked, service.limits)
    return _stream(service, asked.model, "explain", work)


@router.post("/api/curves", status_code=200, response_class=EventStream, responses=STREAM)
async def curves(asked: CurvesRequest, service: Current) -> Response:
    """Measure how the output falls as parts are removed in the order of each record."""
    service.check_free()
    work = await asyncio.to_thread(plan_curves, service.model(asked.model), asked, service.limits)
    return _stream(service, asked.model, "curves", work)


@router.post("/api/review", status_code=200, response_class=EventStream, responses=STREAM)
async def review(asked: ReviewRequest, service: Current) -> Response:
    """Explain the rows of a file."""
    service.check_free()
    work = await asyncio.to_thread(plan_review, service.model(asked.model), asked, service.limits)
    return _stream(service, asked.model, "review", work)


def _stream(service: Service, model: str, kind: str, work: Callable[[Any], None]) -> Response:
    service.check_free()
    return EventStream(service.lanes[model], kind, work)


@router.delete("/api/jobs/{job}", status_code=204)
def cancel(job: Name, service: Current) -> Response:
    """End a job."""
    service.cancel(job)
    return Response(status_code=204)


@router.post("/api/render", response_model=RenderReply)
def render_records(asked: RenderRequest, service: Current) -> Response:
    """Return records as rows of cells, with the differences of methods if asked for."""
    return _reply(render(asked, service.limits))


@router.post("/api/open", response_model=OpenReply)
async def open_saved(asked: OpenRequest, request: Request, service: Current) -> Response:
    """Return the results of a file that the page or the command line saved."""
    replies = []
    with service.place_of_click():
        saved = await asyncio.to_thread(open_file, asked.content, service.limits)
        for group in saved.groups:
            for name, record in group.items():
                model = service.of_record(record)
                work = (_reopen, model.for_clicks, name, record) if model else (view_of, None, name, record)
                view = await _click(request, model.clicks if model else None, *work)
                replies.append(MethodReply(name, 0, 1, view))
    return _reply(OpenReply(saved.page, tuple(replies)))


def _reopen(task: Any, name: str, record: Any) -> Any:
    """Return the view of a record from a file; if this model cannot read it as it says, nothing can be switched off."""
    try:
        task.reopen(record)
    except WhichTokenError:
        return view_of(None, name, record)
    return view_of(task, name, record)


@router.post(
    "/api/export", response_class=Response, responses={200: {"content": {kind: {} for kind in TYPES.values()}}}
)
def export_records(asked: ExportRequest, service: Current) -> Response:
    """Return records as a file."""
    content = export(asked, service.limits, service.drawing)
    disposition = {"content-disposition": f'attachment; filename="whichtoken.{asked.format}"'}
    return Response(content, media_type=TYPES[asked.format], headers=disposition)


def _benchmark(service: Service) -> StoredBenchmark:
    if service.benchmark is None:
        raise Refusal(404, "NotFound", "this server has no benchmark; start it with --benchmark FOLDER")
    return service.benchmark


@router.get("/api/benchmark", response_model=BenchmarkReply)
def benchmark(service: Current) -> Response:
    return _reply(benchmark_reply(_benchmark(service)))


@router.get("/api/benchmark/disagreements", response_model=DisagreementsReply)
def disagree(first: Name, second: Name, service: Current, limit: Annotated[int, Query(ge=1, le=500)] = 20) -> Response:
    """Return the inputs on which two methods differ most."""
    return _reply(disagreements_reply(_benchmark(service), first, second, limit))


@router.get("/benchmark", include_in_schema=False)
def benchmark_page(service: Current) -> Response:
    return _report(_benchmark(service).report)


@router.get("/corpus", include_in_schema=False)
def corpus_page(service: Current) -> Response:
    if service.corpus is None:
        raise Refusal(404, "NotFound", "this server has no corpus; start it with --corpus FOLDER")
    return _report(service.corpus)


def _report(source: str) -> Response:
    return Response(source, media_type="text/html; charset=utf-8", headers={"content-security-policy": REPORT_POLICY})


def _reply(reply: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_bytes(reply), status, headers, "application/json")


def _reply_own(request: Request, error: WhichTokenError) -> Response:
    described = describe_error(error)
    status = described.error.status
    return _reply(described, status, {"retry-after": "1"} if status == 429 else None)


def _reply_invalid(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    message = f"{place[:100] or 'the request'}: {first['msg'][:200]}; see /api/openapi.json"
    return _reply(describe_error(Refusal(422, "WrongShape", message)), 422)


def _reply_http(request: Request, error: HTTPException) -> Response:
    status = error.status_code
    message = {404: "there is nothing at this address", 405: "this address has other methods"}.get(status, error.detail)
    described = ErrorReply(ErrorText("Http", f"{message}; see /api/openapi.json", status))
    return _reply(described, status, dict(error.headers or {}))


def _reply_unexpected(request: Request, error: Exception) -> Response:
    return _reply(note_unexpected(error, request.app.state.service.counters), 500)
