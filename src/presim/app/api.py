"""The addresses of the app's JSON interface, and their description as OpenAPI, made of the same table and types."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, Literal

import msgspec

import presim
from presim.app.answers import Done, JobLog, JobStatus, Overview, PaneData, Refusal, Result
from presim.app.forms import Form
from presim.app.key_figures import Summary
from presim.app.words import Checked
from presim.report.blocks import Block

TOKEN = "x-presim-token"
Body = Literal["", "values", "file"]
_BODIES: dict[str, dict[str, Any]] = {
    "values": {
        "application/json": {
            "schema": {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}
        }
    },
    "file": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@dataclasses.dataclass(frozen=True)
class Address:
    """An address: what it answers, and the method of `presim.app.server` that does."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str  # behind /api
    answer: str  # name of the method
    summary: str
    type: Any = PaneData  # of the JSON
    body: Body = ""  # values of a form, or a file
    media_type: str = "application/json"
    switches: tuple[str, ...] = ()  # of the query


ADDRESSES = (
    Address("GET", "/project", "project", "The project with its jobs and results.", Overview),
    Address("GET", "/events", "events", "The project, whenever it changes.", Overview, media_type="text/event-stream"),
    Address("GET", "/openapi.json", "openapi", "This description."),
    Address("GET", "/questions/{question}", "form", "The form of a question.", Form),
    Address("POST", "/questions/{question}/check", "check", "What values of a form stand for.", Checked, "values"),
    Address("POST", "/questions/{question}/start", "start", "Start a job that answers.", JobStatus, "values"),
    Address(
        "POST",
        "/questions/{question}/change",
        "change",
        "A what-if: its figures, not kept; `ahead`: by a process of lower priority.",
        Summary,
        "values",
        switches=("ahead",),
    ),
    Address("GET", "/jobs/{name}", "job", "A job with its log.", JobLog),
    Address("POST", "/jobs/{name}/cancel", "cancel", "End a job.", Done),
    Address("GET", "/comparisons/{names}", "comparison", "What changed between steps, part by part.", list[Block]),
    Address("GET", "/results/{name}", "result", "A result and the names of its panes.", Result),
    Address("DELETE", "/results/{name}", "remove", "Delete a result, its command and its log.", Done),
    Address("GET", "/results/{name}/page", "page", "A result as an HTML page.", str, media_type="text/html"),
    Address("GET", "/results/{name}/panes/{pane}", "pane", "Data of a pane of a result."),
    Address("PUT", "/files/{name}", "upload", "Put a file into the folder, or below one of it.", Done, "file"),
)


@functools.cache
def openapi() -> dict[str, Any]:
    """The description as OpenAPI 3.1."""
    types = [address.type for address in ADDRESSES] + [Refusal]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refusal = {"description": "Refused.", "content": {"application/json": {"schema": schemas[-1]}}}
    paths: dict[str, dict[str, Any]] = {}
    for address, schema in zip(ADDRESSES, schemas):
        content = {address.media_type: {"schema": schema}}
        answers = {"200": {"description": address.summary, "content": content}, "400": refusal, "403": refusal}
        entry: dict[str, Any] = {"operationId": address.answer, "summary": address.summary, "responses": answers}
        if address.body:
            entry["requestBody"] = {"required": True, "content": _BODIES[address.body]}
        entry["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", address.path)
        ] + [{"name": name, "in": "query", "schema": {"type": "string"}} for name in address.switches]
        paths.setdefault(f"/api{address.path}", {})[address.method.lower()] = entry
    schemes = {"token": {"type": "apiKey", "in": "header", "name": TOKEN}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "presim app", "version": presim.__version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": schemes},
    }
