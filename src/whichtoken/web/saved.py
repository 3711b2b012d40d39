"""Records without their model: draw them, export them, and open files that the page or the command line saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from whichtoken.decode import parse_json
from whichtoken.errors import BadArtifact, BadInput
from whichtoken.records import Attribution
from whichtoken.render.canvas import figure_bytes
from whichtoken.render.figures import draw
from whichtoken.render.groups import group_results
from whichtoken.render.review import page_for
from whichtoken.render.rows import Look, panels
from whichtoken.results import Results, parse_results
from whichtoken.web.asked import read_records
from whichtoken.web.limits import Limits, too_large
from whichtoken.web.replies import RenderReply
from whichtoken.web.schema import ExportRequest, RenderRequest
from whichtoken.web.views import panel_view

STATE, SCHEMA = "state", 1  # how files of the page say what they are
TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class SavedFile:
    """What a saved file contains: the state of the page, if the page wrote it, and records, by input and method."""

    page: Mapping[str, Any] | None
    groups: tuple[dict[str, Attribution], ...]


def render(asked: RenderRequest, limits: Limits) -> RenderReply:
    records = read_records(asked.records, limits)
    drawn = panels(records, Look(asked.level, asked.differences))
    return RenderReply(tuple(map(panel_view, drawn)))


def export(asked: ExportRequest, limits: Limits, drawing: Lock) -> bytes:
    """Return the bytes of a file."""
    records, look = read_records(asked.records, limits), Look(asked.level, asked.differences)
    if asked.format == "json":
        return Results(tuple(group_results(records))).to_json().encode()
    if asked.format == "html":
        return page_for(records, look).encode()
    with drawing:
        return figure_bytes(draw(records, look), asked.format)


def open_file(content: str, limits: Limits) -> SavedFile:
    """Read a saved file; BadArtifact if it is none."""
    page, records = _read(content, limits)
    return SavedFile(page, tuple(group_results(records)))


def _read(content: str, limits: Limits) -> tuple[Mapping[str, Any] | None, Sequence[Attribution]]:
    if not content.strip():
        raise BadInput("the file is empty; open one that this page or whichtoken explain saved")
    if not content.lstrip().startswith("{") or "\n{" in content.strip():
        records = parse_results(content, "the file")
        if len(records) > limits.records:
            raise too_large("the file", len(records), limits.records, "records")
        return None, records
    parsed = parse_json(content, "a saved file")
    if not isinstance(parsed, dict) or parsed.get("whichtoken") != STATE:
        return None, parse_results(content, "the file")
    page, stored = parsed.get("page"), parsed.get("records")
    if parsed.get("schema") != SCHEMA or not isinstance(page, dict) or not isinstance(stored, list):
        raise BadArtifact(f"the file is not a saved state of schema {SCHEMA}; save it again with this version")
    return page, read_records(stored, limits) if stored else []
