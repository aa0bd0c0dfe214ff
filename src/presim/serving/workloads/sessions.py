"""A workload of a trace's requests: conversations in the order of their turns, and requests that wait for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from presim.serving.workloads.trace_rows import Reading, TraceRequest
from presim.serving.workloads.workload import Ints, Workload, make


def workload_of(name: str, reading: Reading) -> Workload:
    """The workload of what was read; requests that wait for one that is not there are skipped, with the reason."""
    requests, skipped = _ordered(reading.requests)
    requests = _grown(requests)
    numbers = {request.name: number for number, request in enumerate(requests) if request.name}
    start = min((request.when_s for request in requests if not request.after), default=0.0)
    parents = [[numbers[name] for name in request.after] for request in requests]
    ids = [
        request.ids[: request.prompt // reading.block_tokens] if reading.block_tokens else () for request in requests
    ]
    return make(
        name,
        np.array([max(round((request.when_s - start) * 1e9), 0) for request in requests], np.int64),
        np.array([request.prompt for request in requests], np.int64),
        np.array([request.output for request in requests], np.int64),
        stream=_streams(requests),
        parent=np.array([max(several, default=-1) for several in parents], np.int64),
        delay_ns=np.array([round(request.delay_s * 1e9) for request in requests], np.int64),
        joins=_joins(parents),
        segment_first=np.concatenate([[0], np.cumsum([len(blocks) for blocks in ids], dtype=np.int64)]).astype(
            np.int64
        ),
        segments=np.array([block for blocks in ids for block in blocks], np.int64),
        segment_tokens=reading.block_tokens if any(ids) else 0,
        origin=f"{reading.kind}, {name}",
        skipped=(*reading.skipped, *skipped),
        remarks=reading.remarks,
    )


def _joins(parents: Sequence[Sequence[int]]) -> Ints:
    """Pairs of a request and one that it waits for beside its parent, which is the last of them."""
    pairs = [(number, parent) for number, several in enumerate(parents) for parent in sorted(several)[:-1]]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _streams(requests: Sequence[TraceRequest]) -> Ints:
    """A stream for each conversation whose prompts grow, and for each other request."""
    numbers: dict[str, int] = {}
    keys = [f"s{request.session}" if request.grows else f"r{number}" for number, request in enumerate(requests)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _ordered(requests: Sequence[TraceRequest]) -> tuple[list[TraceRequest], list[str]]:
    """Requests by time, each after those that it waits for; and why some are left out."""
    named = {request.name: request for request in requests if request.name}
    begins: dict[str, tuple[float, int]] = {}  # when the first of a chain comes, and how many are before
    skipped: list[str] = []
    waiting = [request for request in requests if request.after]
    begins |= {request.name: (request.when_s, 0) for request in requests if not request.after}
    while waiting:
        met = [request for request in waiting if all(name in begins for name in request.after)]
        if not met:
            break
        for request in met:
            parents = [begins[name] for name in request.after]
            begins[request.name] = max(time_s for time_s, _ in parents), 1 + max(depth for _, depth in parents)
        waiting = [request for request in waiting if request.name not in begins]
    for request in waiting:
        missing = next((name for name in request.after if name not in named), None)
        skipped.append(
            f"{_shown(request.name)} waits for {_shown(missing)}, which is not in the trace"
            if missing
            else f"{_shown(request.name)} waits for requests that wait for it or were skipped"
        )
    usable = [request for request in requests if not request.after or request.name in begins]
    order = sorted(range(len(usable)), key=lambda row: (*begins.get(usable[row].name, (usable[row].when_s, 0)), row))
    return [usable[row] for row in order], skipped


def _shown(name: str | None) -> str:
    return repr((name or "").replace("\n", ", turn "))


def _grown(requests: Sequence[TraceRequest]) -> list[TraceRequest]:
    """Prompts with all former turns of their conversation in front; the first turn's ids stand for its beginning."""
    before: dict[str, tuple[int, tuple[int, ...]]] = {}  # tokens so far, ids of the first prompt
    grown = []
    for request in requests:
        if not request.grows:
            grown.append(request)
            continue
        tokens, ids = before.get(request.session, (0, request.ids))
        prompt = tokens + request.prompt
        grown.append(dataclasses.replace(request, prompt=prompt, ids=ids))
        before[request.session] = prompt + request.output, ids
    return grown
