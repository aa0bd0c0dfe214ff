"""Traces in lines of JSON with input_length: Mooncake's, Bailian's, AIPerf's sessions, and Dynamo's agentic ones.

The unit of timestamps and the tokens of a block are recognised from the fields and the numbers, or asked for:
Mooncake's and AIPerf's timestamps are in ms and their blocks have 512 tokens; Bailian's are in seconds and 16 tokens.
In AIPerf's sessions a turn's length is of its new text, and all former turns stand in front (AIPerf,
docs/reference/conversation-context-mode.md); a row of Dynamo's agentic trace (`wait_for`) has its whole prompt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from presim.errors import InputError
from presim.serving.workloads.trace_rows import CHARACTERS, Reading, TraceRequest, block_ids, number, seconds, whole
from presim.system.files import FormatError, decode_json_lines

_BAILIAN = {"chat_id", "parent_chat_id"}
_SESSIONS = {"session_id", "delay", "wait_for", "tool_wait_ms", "text_input", "messages"}
_USED = {"timestamp", "input_length", "output_length", "hash_ids", "request_id", *_SESSIONS}
_SIZES = tuple(1 << power for power in range(14))
_DENSEST_PER_S = 2000.0  # requests/s that tell whole seconds from ms; Mooncake's and Bailian's have 3 to 6
_THINNEST_PER_S = 1 / 3600  # the same for microseconds
_FEWEST = 10  # requests that have a rate
_ENOUGH = 0.99  # of the rows whose ids have to fit a size of blocks

Row = dict[str, Any]


def read_mooncake(text: str, unit: str | None, block_tokens: int | None) -> Reading:
    """Requests of a trace. ``unit``: of timestamps, s or ms; ``block_tokens``: of an id; None: from its contents.

    Raises:
        InputError: the contents do not tell them.
    """
    rows, bad = _rows(text)
    names = {name for _, row in rows for name in row}
    kind = "Bailian" if names >= _BAILIAN else "agentic" if "wait_for" in names else "Mooncake"
    size = _block_tokens(rows, block_tokens, 16 if kind == "Bailian" else 512)
    stamp_unit = unit or _unit([row for _, row in rows], kind, names, size)
    grows = kind == "Mooncake" and "session_id" in names and not _has_whole_prompts([row for _, row in rows])
    requests = []
    turns: dict[str, int] = {}
    for line, row in rows:
        request = _request(
            row, 1.0 if stamp_unit == "s" else 1e-3, line, None if kind == "agentic" else turns, grows=grows
        )
        if isinstance(request, str):
            bad.append((line, request))
        else:
            requests.append(request)
    skipped = [f"row {line}: {reason}" for line, reason in sorted(bad)]
    remarks = _remarks(stamp_unit, size, names, grows=grows)
    return Reading(f"{kind} trace", requests, skipped, size, remarks)


def _rows(text: str) -> tuple[list[tuple[int, Row]], list[tuple[int, str]]]:
    """The objects of a file with their lines, and the lines that hold none."""
    rows, bad = [], []
    for line, row in enumerate(decode_json_lines(text), start=1):
        if isinstance(row, FormatError):
            bad.append((line, f"invalid JSON: {row}"))
        elif isinstance(row, dict):
            rows.append((line, row))
        else:
            bad.append((line, "no object"))
    return rows, bad


def _block_tokens(rows: Sequence[tuple[int, Row]], asked_tokens: int | None, usual: int) -> int:
    """Tokens of an id; 0: there are none."""
    counts = []
    for _, row in rows:
        ids, tokens = row.get("hash_ids"), number(row.get("input_length"))
        if isinstance(ids, list) and ids and tokens is not None and tokens >= 1:
            counts.append((tokens, len(ids)))
    if not counts:
        return 0

    def fits(size: int) -> bool:
        return sum(abs(ids - tokens / size) < 1 for tokens, ids in counts) >= _ENOUGH * len(counts)

    if asked_tokens is not None and not fits(asked_tokens):
        tokens, ids = next(pair for pair in counts if abs(pair[1] - pair[0] / asked_tokens) >= 1)
        raise InputError(
            f"--trace-block-tokens {asked_tokens} does not fit the trace: a prompt of {tokens:g} tokens has {ids} "
            "hash_ids; leave it out, or give the size of the trace's blocks"
        )
    if asked_tokens is not None or fits(usual):
        return asked_tokens or usual
    fitting = [size for size in _SIZES if fits(size)]
    if len(fitting) != 1:
        tokens, ids = counts[0]
        raise InputError(
            f"the tokens of a hash_id are not clear from the trace (a prompt of {tokens:g} tokens has {ids}); give "
            "--trace-block-tokens, e.g. 512 for Mooncake's traces or 16 for Bailian's"
        )
    return fitting[0]


def _unit(rows: Sequence[Row], kind: str, names: set[str], size: int) -> str:
    if kind == "Bailian":
        return "s"
    if kind == "agentic" or names & _SESSIONS:
        return "ms"
    stamps = [stamp for row in rows if (stamp := number(row.get("timestamp"))) is not None]
    if len(set(stamps)) < 2:
        return "ms"  # as good as any other
    are_whole = all(stamp == int(stamp) for stamp in stamps)
    if are_whole and size in (0, 512):
        _check_rate([time for row in rows if isinstance(time := seconds(row, "timestamp", 1e-3), float)])
        return "ms"
    if not are_whole and size == 16:
        return "s"
    shown = next((stamp for stamp in stamps if stamp != int(stamp)), stamps[0] if stamps else 0)
    raise InputError(
        f"the unit of timestamps such as {shown:g} is not clear from the trace, whose blocks have "
        f"{size or 'no'} tokens: Mooncake's are whole ms with blocks of 512, Bailian's seconds with blocks of 16; "
        "give --trace-unit s or --trace-unit ms"
    )


def _check_rate(times_s: Sequence[float]) -> None:
    """Refuse stamps that are no ms by how often requests come: no published trace is that dense or that thin.

    Raises:
        InputError: names the rate.
    """
    if len(times_s) < _FEWEST or max(times_s) == min(times_s):
        return
    per_s = (len(times_s) - 1) / (max(times_s) - min(times_s))
    if not _THINNEST_PER_S <= per_s <= _DENSEST_PER_S:
        raise InputError(
            f"in ms, the timestamps from {min(times_s) * 1e3:g} to {max(times_s) * 1e3:g} of {len(times_s):,} requests "
            f"would be {per_s:,.3g} requests/s: give --trace-unit s or --trace-unit ms, or convert them to ms"
        )


def _has_whole_prompts(rows: Sequence[Row]) -> bool:
    """Whether each turn of a session repeats the ids of the turn before: its length is then of its whole prompt."""
    before: dict[str, list[Any]] = {}
    repeated = False
    for row in rows:
        session, ids = str(row.get("session_id")), row.get("hash_ids")
        if not isinstance(ids, list):
            return False
        former = before.get(session)
        if former is not None and (len(ids) <= len(former) or ids[: len(former) - 1] != former[:-1]):
            return False
        repeated = repeated or former is not None
        before[session] = ids
    return repeated


def _request(row: Row, unit_s: float, line: int, turns: dict[str, int] | None, *, grows: bool) -> TraceRequest | str:
    """A row's request, or why there is none.

    ``turns``: of each session so far, which are counted on; None: rows say themselves for which they wait.
    """
    prompt, output, ids = _prompt(row), whole(row, "output_length"), block_ids(row)
    session = row.get("session_id")
    times: dict[str, float] = {}
    for name, scale in (("timestamp", unit_s), ("delay", 1e-3), ("tool_wait_ms", 1e-3)):
        time = seconds(row, name, scale) if row.get(name) is not None else 0.0
        if isinstance(time, str):
            return time
        times[name] = time
    for value in (prompt, output, ids):
        if isinstance(value, str):
            return value
    waits = row.get("wait_for") or []
    if not isinstance(waits, list) or not all(isinstance(name, str | int) for name in waits):
        return "wait_for is not a list of request_ids"
    after, name = tuple(dict.fromkeys(map(str, waits))), str(row.get("request_id", ""))
    if session is not None and turns is not None:
        turn = turns.get(str(session), 0)
        turns[str(session)] = turn + 1
        after = (f"{session}\n{turn - 1}",) if turn else ()
        name = f"{session}\n{turn}"
    if row.get("timestamp") is None and session is None and not after:
        return "timestamp is None"
    assert isinstance(prompt, int)
    assert isinstance(output, int)
    assert isinstance(ids, tuple)
    delay_s = times["delay"] + times["tool_wait_ms"]
    when_s = times["timestamp"] + (0.0 if after else delay_s)
    return TraceRequest(
        when_s, prompt, output, ids, name or f"\n{line}", "" if session is None else str(session), after,
        delay_s if after else 0.0, grows and session is not None,
    )  # fmt: skip


def _prompt(row: Row) -> int | str:
    """Tokens of a prompt: its length, or by the characters of its text."""
    if row.get("input_length") is not None:
        return whole(row, "input_length")
    text = row.get("text_input")
    if text is None and isinstance(row.get("messages"), list):
        text = json.dumps([message.get("content") for message in row["messages"] if isinstance(message, dict)])
    if not isinstance(text, str):
        return "input_length is None"
    return max(len(text) // CHARACTERS, 1)


def _remarks(unit: str, size: int, names: set[str], *, grows: bool) -> tuple[str, ...]:
    blocks = f", a hash_id stands for {size} tokens" if size else ""
    remarks = [f"The trace's timestamps are in {unit}{blocks}."]
    if grows:
        remarks.append(
            "A turn's length is of its new text, behind all former turns of its session; it starts when the former one "
            "has ended, after its delay."
        )
    if names & {"text_input", "messages"}:
        remarks.append(f"Texts have a token for {CHARACTERS} characters.")
    if unused := sorted(names - _USED):
        remarks.append(f"Fields of the trace that are not used: {', '.join(unused)}.")
    return tuple(remarks)
