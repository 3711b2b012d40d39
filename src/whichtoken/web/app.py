"""The application: routes and error replies. Each route reads a request, calls the library and replies."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from whichtoken import __version__
from whichtoken.errors import WhichTokenError
from whichtoken.records import Attribution
from whichtoken.render.theme import page_colours, shade_rules
from whichtoken.web.guard import AsgiApp, Guard, error_reply
from whichtoken.web.limits import Access, Refusal
from whichtoken.web.replies import ErrorReply, HealthReply, InfoReply, PredictReply
from whichtoken.web.schema import PredictRequest
from whichtoken.web.served import find_model
from whichtoken.web.service import Service
from whichtoken.web.switching import plan_switching, switch

STATIC = Path(__file__).parent / "static"
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply} for status in (400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 500, 503)
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
    return Guard(app, access, service.limits)


def to_bytes(reply: Any) -> bytes:
    """Encode a reply; records are written as `to_json` writes them."""
    return json.dumps(_plain(reply), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Attribution):
        return json.loads(value.to_json())
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(part) for name, part in vars(value).items()}
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _reply(reply: Any) -> Response:
    return Response(to_bytes(reply), media_type="application/json")


@router.get("/", include_in_schema=False)
def page() -> Response:
    if not (STATIC / "index.html").is_file():
        raise Refusal(404, "NotFound", "the page is not installed; the API is below /api, see /api/openapi.json")
    return FileResponse(STATIC / "index.html")


@router.get("/health", response_model=HealthReply)
def health() -> Response:
    return _reply(HealthReply("ok"))


@router.get("/api/shades.css", include_in_schema=False)
def shades() -> Response:
    """Return the colours of scores, the same as on all other pages."""
    return Response(page_colours() + shade_rules(), media_type="text/css")


@router.get("/api/info", response_model=InfoReply)
def info(service: Current) -> Response:
    return _reply(service.info())


@router.post("/api/predict", response_model=PredictReply)
async def predict(asked: PredictRequest, service: Current) -> Response:
    """Return the output for an input, whole and with parts switched off."""
    model = find_model(service.models, asked.model)
    job = plan_switching(model, asked, service.limits)
    return _reply(await asyncio.get_running_loop().run_in_executor(model.clicks, switch, job))


def _reply_own(request: Request, error: WhichTokenError) -> Response:
    status, kind = (error.status, error.kind) if isinstance(error, Refusal) else (400, type(error).__name__)
    headers = {"retry-after": "1"} if status == 429 else None
    return JSONResponse(error_reply(status, kind, str(error)), status, headers)


def _reply_invalid(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    message = f"{place[:200] or 'the body'}: {first['msg']}; see /api/openapi.json"
    return JSONResponse(error_reply(422, "WrongShape", message), 422)


def _reply_http(request: Request, error: HTTPException) -> Response:
    message = {404: "there is nothing at this address", 405: "this address has other methods"}.get(error.status_code)
    shown = f"{message or error.detail}; see /api/openapi.json"
    return JSONResponse(error_reply(error.status_code, "Http", shown), error.status_code, error.headers)


def _reply_unexpected(request: Request, error: Exception) -> Response:
    request.app.state.service.counters.add("whichtoken_errors_total", type=type(error).__name__)
    return JSONResponse(error_reply(500, "Internal", "an unexpected error; the server's log has its place"), 500)
