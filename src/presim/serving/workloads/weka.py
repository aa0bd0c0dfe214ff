"""Recorded sessions of coding agents in Weka's format, which AgentX replays: a file, or a folder with a file for each.

A file has the calls of one session in `requests`: `t` in seconds since its start, `in` and `out` in tokens, ids of the
prompt's blocks, `think_time` of the client and `api_time` of the server; sub-agents have calls of their own. A call
starts when the one before has ended, after the client's time; a sub-agent starts with the call that follows it in the
parent's list, which waits for its end unless it was launched in the background (AIPerf, docs/tutorials/weka-trace.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.serving.workloads.trace_rows import Reading, TraceRequest, block_ids, lengths, number
from presim.system.files import FormatError, decode_foreign_json, names_folder, read_bytes

_USED = {"t", "type", "in", "out", "hash_ids", "think_time", "api_time", "agent_id", "requests", "status"}
_BITS = 32  # of an id within its file


@dataclasses.dataclass
class _Session:
    """What is read of one file."""

    number: int
    requests: list[TraceRequest] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    unused: set[str] = dataclasses.field(default_factory=set)


def is_weka(path: Path, head: str) -> bool:
    """Whether a path is such a file or a folder of files; ``head``: the beginning of a file."""
    names_session = '"requests"' in head and ('"hash_id_scope"' in head or '"block_size"' in head)
    return names_folder(path) or (head.lstrip().startswith("{") and names_session)


def read_weka(path: Path) -> Reading:
    """Requests of all sessions, which start together.

    Raises:
        InputError: there is no file, one is no JSON, or their blocks differ in size.
    """
    files = sorted(path.glob("*.json")) if names_folder(path) else [path]
    if not files:
        raise InputError(f"{path} has no *.json file; give a folder of Weka's sessions or a trace file")
    sizes: set[int] = set()
    sessions = []
    for file_number, file in enumerate(files):
        content = _content(file)
        sizes.add(content["block_size"])
        session = _Session(0 if content.get("hash_id_scope") == "global" else file_number)
        _read_calls(session, content["requests"], f"{file_number}", (), 0.0)
        sessions.append(session)
    if len(sizes) > 1:
        raise InputError(f"the sessions of {path} have blocks of {sorted(sizes)} tokens; give those of one size")
    unused = sorted(set().union(*(session.unused for session in sessions)))
    remarks = ["All sessions of the trace start together; a call starts when the former one has ended."]
    remarks += [f"Fields of the trace that are not used: {', '.join(unused)}."] if unused else []
    return Reading(
        "Weka sessions",
        [request for session in sessions for request in session.requests],
        [reason for session in sessions for reason in session.skipped],
        sizes.pop(),
        tuple(remarks),
    )


def _content(file: Path) -> dict[str, Any]:
    try:
        content = decode_foreign_json(read_bytes(file, "give a session of a coding agent in Weka's format"))
    except FormatError as error:
        raise InputError(f"{file} is no JSON ({error}); give a session in Weka's format") from error
    if not isinstance(content, dict) or not isinstance(content.get("requests"), list):
        raise InputError(f"{file} has no list of requests; give a session in Weka's format")
    size = content.get("block_size")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 1 << 20:
        raise InputError(f"{file} has block_size {size!r}; give the tokens of a hash_id")
    return content


def _read_calls(
    session: _Session, calls: Sequence[Any], prefix: str, after: tuple[str, ...], delay_s: float
) -> tuple[str, ...]:
    """Add the calls of an agent, one after the other; returns the names for which its parent waits."""
    ended_s = 0.0
    children: tuple[str, ...] = ()
    for position, call in enumerate(calls):
        name = f"{prefix}.{position}"
        if not isinstance(call, dict):
            session.skipped.append(f"call {name}: no object")
            continue
        session.unused |= set(call) - _USED
        if call.get("type") == "subagent":
            inner = call.get("requests")
            last = _read_calls(session, inner if isinstance(inner, list) else [], name, after, delay_s)
            children += last if call.get("status") != "async_launched" and last != after else ()
            continue
        request = _request(session, call, name, (*after, *children), _think_delay_s(call, ended_s, delay_s))
        if isinstance(request, str):
            session.skipped.append(f"call {name}: {request}")
            continue
        session.requests.append(request)
        after, children, delay_s = (name,), (), 0.0
        ended_s = (number(call.get("t")) or 0.0) + (number(call.get("api_time")) or 0.0)
    return (*after, *children)


def _think_delay_s(call: dict[str, Any], ended_s: float, delay_s: float) -> float:
    """Time of the client before a call: recorded, or since the former one ended."""
    think_s = number(call.get("think_time"))
    if think_s is not None and think_s >= 0:
        return think_s
    return max((number(call.get("t")) or 0.0) - ended_s, 0.0) if ended_s else delay_s


def _request(
    session: _Session, call: dict[str, Any], name: str, after: tuple[str, ...], delay_s: float
) -> TraceRequest | str:
    tokens, ids = lengths(call, "in", "out"), block_ids(call)
    if isinstance(tokens, str) or isinstance(ids, str):
        return tokens if isinstance(tokens, str) else str(ids)
    if max(ids, default=0) >> _BITS:
        return f"a hash_id is above {(1 << _BITS) - 1}"
    scoped = tuple(block + (session.number << _BITS) for block in ids)
    return TraceRequest(
        0.0, *tokens, scoped, name, after=tuple(dict.fromkeys(after)), delay_s=delay_s if after else 0.0
    )
