"""Readers of public request traces: Azure 2023 and 2024, Mooncake, Bailian, AIPerf, Dynamo, Weka, BurstGPT, ShareGPT.

And those of Vidur and LLMServingSim. Rows with a missing field or a length below 1 are skipped, counted, and reported
with their reason.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from presim.errors import InputError
from presim.serving.workloads.mooncake import read_mooncake
from presim.serving.workloads.sessions import workload_of
from presim.serving.workloads.trace_rows import CHARACTERS, Reading, TraceRequest, lengths, seconds
from presim.serving.workloads.weka import is_weka, read_weka
from presim.serving.workloads.workload import Workload
from presim.system.files import FormatError, decode_csv, decode_foreign_json, decode_json_lines, names_folder, read_text

_STAMP = re.compile(r"(?P<whole>[^.]*)(?P<part>\.\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_RESULTS = {("input_lens", "output_lens"): "vllm bench serve", ("benchmarks",): "GuideLLM"}
Row = TraceRequest | str


def read_trace(
    path: Path, limit: int | None = None, *, unit: str | None = None, block_tokens: int | None = None
) -> Workload:
    """Read the first ``limit`` requests of a trace; the format is detected from its beginning.

    ``unit``: of timestamps, s or ms; ``block_tokens``: of a hash_id; None: as the contents say.

    Raises:
        InputError: the file is of no known format, has no usable row, or does not tell its units.
    """
    if names_folder(path):
        reading = read_weka(path)
    else:
        reading = _read(read_text(path, "give a trace of requests"), path, unit, block_tokens)
    workload = workload_of(path.name, reading)
    if not len(workload):
        why = f" ({workload.skipped[0]})" if workload.skipped else ""
        raise InputError(f"{path} has no usable row as {reading.kind}{why}; give another file")
    return workload if limit is None else workload.first(limit)


def _read(text: str, path: Path, unit: str | None, block_tokens: int | None) -> Reading:
    head = text[:4096].lstrip()
    first = head.splitlines()[0] if head else ""
    if is_weka(path, head):
        return read_weka(path)
    if any(f'"{name}"' in first for name in ("input_length", "text_input")) and first.startswith(("{", "[")):
        return read_mooncake(text if first.startswith("{") else _as_lines(text, path), unit, block_tokens)
    kind, reader, used_columns = _reader(head, first, path)
    requests, bad = [], []
    try:
        for number, match in enumerate(reader(text), start=1):
            if isinstance(match, str):
                bad.append(f"row {number}: {match}")
            else:
                requests.append(match)
    except FormatError as error:
        raise InputError(f"{path} cannot be read as {kind} ({error}); give it as published") from error
    unused = sorted(set(next(iter(decode_csv(text)), {})) - {"", *used_columns}) if used_columns else ()
    remarks = (f"Columns of the trace that are not used: {', '.join(unused)}.",) if unused else ()
    if reader is _sharegpt:
        remarks = (f"Texts have a token for {CHARACTERS} characters.",)
    return Reading(kind, requests, bad, remarks=remarks)


def _reader(head: str, first: str, path: Path) -> tuple[str, Callable[[str], Iterator[Row]], tuple[str, ...]]:
    """What a trace is, what reads its rows, and the columns that it uses of a table."""
    if "ContextTokens" in first:
        return "Azure LLM inference trace", _azure, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    if "Request tokens" in first:  # the total is their sum
        return "BurstGPT trace", _burstgpt, ("Timestamp", "Request tokens", "Response tokens", "Total tokens")
    if "num_prefill_tokens" in first:
        return "Vidur trace", _vidur, ("arrived_at", "num_prefill_tokens", "num_decode_tokens", "num_total_tokens")
    if head.startswith("[") or (head.startswith("{") and '"conversations"' in head):
        return "ShareGPT conversations", _sharegpt, ()
    if "input_toks" in first:
        return "LLMServingSim trace", _llmservingsim, ()
    for words, program in _RESULTS.items():
        if all(f'"{word}"' in head for word in words):
            raise InputError(
                f"{path} is a result of {program}, not a trace of requests; give the trace that it sent, or --rate "
                "with --input and --output"
            )
    raise InputError(
        f"{path} has no known trace format (Azure, Mooncake, Bailian, AIPerf, Dynamo, Weka, BurstGPT, ShareGPT, "
        f"Vidur, LLMServingSim); its first line is {first[:60]!r}: convert it to one of these, e.g. lines of timestamp "
        "(ms), input_length, output_length"
    )


def _as_lines(text: str, path: Path) -> str:
    """A JSON array of rows as lines."""
    try:
        rows = decode_foreign_json(text)
    except FormatError as error:
        raise InputError(f"{path} is not valid JSON ({error}); give one row a line") from error
    return "\n".join(map(json.dumps, rows))


def stamp_s(stamp: str) -> float | None:
    """Seconds since 1970 of a date and time, in UTC unless it has Z or an offset; None: it is none."""
    moment = _moment(stamp)
    if moment is None:
        return None
    part = re.search(r"\.\d+", stamp)  # Azure's has 7 digits
    in_zone = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return in_zone.timestamp() + (float("0" + part[0]) if part else 0.0)


def _moment(stamp: str) -> datetime.datetime | None:
    """The date and time of a stamp in whole seconds, with its zone if it has one."""
    match = _STAMP.fullmatch(stamp.strip())
    if match is None:
        return None
    try:
        return datetime.datetime.fromisoformat(match["whole"] + (match["zone"] or ""))
    except ValueError:
        return None


def _azure(text: str) -> Iterator[Row]:
    first_zone = None
    for row in decode_csv(text, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        tokens = lengths(row, "ContextTokens", "GeneratedTokens")
        stamp = row.get("TIMESTAMP") or ""
        moment, when_s = _moment(stamp), stamp_s(stamp)
        if moment is None or when_s is None:
            yield f"TIMESTAMP is {stamp.strip()!r}"
            continue
        has_zone = moment.tzinfo is not None
        first_zone = has_zone if first_zone is None else first_zone
        if has_zone != first_zone:
            yield f"TIMESTAMP {stamp.strip()} has {'a' if has_zone else 'no'} time zone, unlike the first row's"
        else:
            yield tokens if isinstance(tokens, str) else TraceRequest(when_s, *tokens)


def _vidur(text: str) -> Iterator[Row]:
    for row in decode_csv(text, ("arrived_at", "num_prefill_tokens", "num_decode_tokens")):
        tokens = lengths(row, "num_prefill_tokens", "num_decode_tokens")
        when_s = seconds(row, "arrived_at")
        if isinstance(tokens, str) or isinstance(when_s, str):
            yield tokens if isinstance(tokens, str) else str(when_s)
        else:
            yield TraceRequest(when_s, *tokens)


def _burstgpt(text: str) -> Iterator[Row]:
    for row in decode_csv(text, ("Timestamp", "Request tokens", "Response tokens")):
        tokens = lengths(row, "Request tokens", "Response tokens")  # 0 response tokens: the request failed
        when_s = seconds(row, "Timestamp")
        if isinstance(tokens, str) or isinstance(when_s, str):
            yield tokens if isinstance(tokens, str) else str(when_s)
        else:
            yield TraceRequest(when_s, *tokens)


def _llmservingsim(text: str) -> Iterator[Row]:
    for row in decode_json_lines(text):
        if not isinstance(row, dict):
            yield f"invalid JSON: {row}" if isinstance(row, FormatError) else "no object"
            continue
        tokens = lengths(row, "input_toks", "output_toks")
        when_s = seconds(row, "arrival_time_ns", 1e-9)
        if isinstance(tokens, str) or isinstance(when_s, str):
            yield tokens if isinstance(tokens, str) else str(when_s)
        else:
            yield TraceRequest(when_s, *tokens)


def _sharegpt(text: str) -> Iterator[Row]:
    """First question and answer of each conversation, as in vllm bench serve; all at time 0."""
    try:
        entries = decode_foreign_json(text)
    except FormatError:
        if text.lstrip().startswith("["):
            raise
        entries = list(decode_json_lines(text))  # a conversation in each line
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or "conversations" not in entry:
            yield f"invalid JSON: {entry}" if isinstance(entry, FormatError) else "no conversations"
            continue
        turns = entry["conversations"]
        if not isinstance(turns, list) or len(turns) < 2 or not all(isinstance(turn, dict) for turn in turns[:2]):
            yield "fewer than two turns"
            continue
        prompt, output = (len(str(turn.get("value", ""))) // CHARACTERS for turn in turns[:2])
        yield TraceRequest(0.0, prompt, output) if min(prompt, output) >= 1 else "an empty turn"
