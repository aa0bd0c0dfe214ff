"""Readers of public request traces: Azure 2023 and 2024, Mooncake, BurstGPT, ShareGPT, LLMServingSim.

Rows with a missing field or a length below 1 are skipped, counted, and reported with their reason.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from presim.errors import InputError
from presim.files import FormatError, decode_csv, decode_foreign_json, decode_json_lines, read_text, shortened
from presim.serving.workloads.workload import Workload, make

_MOONCAKE_TOKENS = 512  # tokens per hash id
_CHARACTERS = 4  # characters per token of text traces: a rule of thumb, noted in the workload's origin
_MOST = 1 << 31  # most tokens of one request
_LONGEST_NUMBER = 40  # characters
_LATEST_S = 1e10  # latest time since 1970 or since the start of the trace
Row = tuple[float, int, int, list[int]]  # s, prompt, output, hash ids


def read_trace(path: Path, limit: int | None = None) -> Workload:
    """Read the requests of a trace; the format is detected from the first row."""
    text = read_text(path, "give a trace of requests")
    kind, reader = _reader(text, path)
    rows, bad = [], []
    try:
        for number, found in enumerate(reader(text), start=1):
            if isinstance(found, str):
                bad.append(f"row {number}: {found}")
            else:
                rows.append(found)
            if limit is not None and len(rows) >= limit:
                break
    except FormatError as error:
        raise InputError(f"{path} cannot be read as {kind} ({error}); give it as published") from error
    if not rows:
        raise InputError(
            f"{path} has no usable row as {kind}" + (f" ({bad[0]})" if bad else "") + "; give another file"
        )
    rows.sort(key=lambda row: row[0])
    start = rows[0][0]
    has_ids = any(row[3] for row in rows)
    return make(
        path.name,
        np.array([round((row[0] - start) * 1e9) for row in rows]),
        np.array([row[1] for row in rows]),
        np.array([row[2] for row in rows]),
        segment_first=np.concatenate([[0], np.cumsum([len(row[3]) for row in rows])]).astype(np.int64),
        segments=np.array([one for row in rows for one in row[3]], np.int64),
        segment_tokens=_MOONCAKE_TOKENS if has_ids else 0,
        origin=f"{kind}, {path.name}",
        skipped=tuple(bad),
    )


def _reader(text: str, path: Path) -> tuple[str, Callable[[str], Iterator[Row | str]]]:
    head = text[:4096].lstrip()
    first = head.splitlines()[0] if head else ""
    if "ContextTokens" in first:
        return "Azure LLM inference trace", _azure
    if "Request tokens" in first:
        return "BurstGPT trace", _burstgpt
    if head.startswith("[") or (head.startswith("{") and '"conversations"' in head):
        return "ShareGPT conversations", _sharegpt
    if "input_length" in first:
        return "Mooncake trace", _mooncake
    if "input_toks" in first:
        return "LLMServingSim trace", _llmservingsim
    raise InputError(
        f"{path} has no known trace format (Azure, Mooncake, BurstGPT, ShareGPT, LLMServingSim); its first line "
        f"is {first[:60]!r}: convert it to one of these, e.g. lines of timestamp (ms), input_length, output_length"
    )


def _whole(row: dict[str, Any], name: str, least: int = 1, most: int = _MOST) -> int | str:
    value = row.get(name)
    number = _number(value)
    if number is None or number != int(number):
        return f"{name} is {shortened(value)}"
    number = int(number)
    if number > most:
        return f"{name} is {number}, above {most}"
    return number if number >= least else f"{name} is {number}, below {least}"


def _seconds(row: dict[str, Any], name: str, unit_s: float = 1.0) -> float | str:
    value = row.get(name)
    number = _number(value)
    if number is None or not 0 <= number * unit_s <= _LATEST_S:
        return f"{name} is {shortened(value)}"
    return number * unit_s


def _number(value: object) -> float | None:
    """A number, or the text of one; None for anything else, such as true, NaN or a list."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and "_" not in value:
        try:
            value = int(value) if value.strip().isdecimal() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _lengths(row: dict[str, Any], prompt: str, output: str) -> tuple[int, int] | str:
    found = _whole(row, prompt), _whole(row, output)
    bad = [each for each in found if isinstance(each, str)]
    return bad[0] if bad else (int(found[0]), int(found[1]))


def _azure(text: str) -> Iterator[Row | str]:
    for row in decode_csv(text):
        lengths = _lengths(row, "ContextTokens", "GeneratedTokens")
        stamp = (row.get("TIMESTAMP") or "").strip()
        try:
            whole, _, rest = stamp.partition(".")
            when = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.UTC).timestamp()
            when += float("0." + rest.split("+")[0]) if rest else 0.0
        except ValueError:
            yield f"TIMESTAMP is {stamp!r}"
            continue
        yield lengths if isinstance(lengths, str) else (when, *lengths, [])


def _burstgpt(text: str) -> Iterator[Row | str]:
    for row in decode_csv(text):
        lengths = _lengths(row, "Request tokens", "Response tokens")  # 0 response tokens: the request failed
        when = _seconds(row, "Timestamp")
        if isinstance(lengths, str) or isinstance(when, str):
            yield lengths if isinstance(lengths, str) else str(when)
        else:
            yield when, *lengths, []


def _lines(text: str) -> Iterator[dict[str, Any] | str]:
    for row in decode_json_lines(text):
        if isinstance(row, FormatError):
            yield f"invalid JSON: {row}"
        else:
            yield row if isinstance(row, dict) else "no object"


def _mooncake(text: str) -> Iterator[Row | str]:
    for row in _lines(text):
        if isinstance(row, str):
            yield row
            continue
        lengths = _lengths(row, "input_length", "output_length")
        when, ids = _seconds(row, "timestamp", 1e-3), row.get("hash_ids") or []
        if isinstance(lengths, str) or isinstance(when, str):
            yield lengths if isinstance(lengths, str) else str(when)
        elif not isinstance(ids, list) or not all(type(one) is int and 0 <= one < 1 << 63 for one in ids):
            yield "hash_ids is not a list of whole numbers"
        else:
            yield when, *lengths, ids[: lengths[0] // _MOONCAKE_TOKENS]


def _llmservingsim(text: str) -> Iterator[Row | str]:
    for row in _lines(text):
        if isinstance(row, str):
            yield row
            continue
        lengths = _lengths(row, "input_toks", "output_toks")
        when = _seconds(row, "arrival_time_ns", 1e-9)
        if isinstance(lengths, str) or isinstance(when, str):
            yield lengths if isinstance(lengths, str) else str(when)
        else:
            yield when, *lengths, []


def _sharegpt(text: str) -> Iterator[Row | str]:
    """First question and answer of each conversation, as in vllm bench serve; all at time 0."""
    entries = decode_foreign_json(text)
    for entry in entries if isinstance(entries, list) else [entries]:
        turns = entry.get("conversations") if isinstance(entry, dict) else None
        if not isinstance(turns, list) or len(turns) < 2 or not all(isinstance(turn, dict) for turn in turns[:2]):
            yield "fewer than two turns"
            continue
        prompt, output = (len(str(turn.get("value", ""))) // _CHARACTERS for turn in turns[:2])
        yield (0.0, prompt, output, []) if min(prompt, output) >= 1 else "an empty turn"
