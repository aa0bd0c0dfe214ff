"""The result as JSON: sorted keys, rows of numbers on one line, so that two results diff well."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from presim.errors import InputError
from presim.result import SCHEMA_VERSION, Result, deployments, serving
from presim.result.deployments import DeployResult
from presim.result.serving import ServingResult
from presim.system.files import (
    MOST_FLOPS,
    FormatError,
    decode_json,
    names_folder,
    read_unpacked,
    shortened,
    to_type,
    write_file,
)
from presim.system.files.field_bounds import Integer

_NUMBERS = re.compile(rb"\[\s+(?:-?[\d.eE+-]+,\s+)*-?[\d.eE+-]+\s+\]")
_SPACE = re.compile(rb"\s+")


_FROM_ONE = ("world_size", "nodes", "gpus_per_node")
_NOT_NEGATIVE = ("_s", "_bytes", "_J", "_W", "count", "rank", "flops")
_ANY_SIGN = ("headroom_bytes",)  # negative where a job does not fit
_MOST_RANKS = 1 << 20
_MOST_SECONDS = 1e12
_MOST = 1e25  # FLOPs of a step on all GPUs of the world


class _Header(msgspec.Struct):
    schema_version: Integer | None = None
    kind: str = "run"
    schema: str = ""  # of results of other verbs: ``presim-serving/1``


def encode(result: Result) -> bytes:
    """The result as JSON text with a final newline."""
    text = msgspec.json.format(msgspec.json.encode(result, order="sorted"), indent=2)
    return (
        _NUMBERS.sub(lambda match: _SPACE.sub(b" ", match[0]).replace(b"[ ", b"[").replace(b" ]", b"]"), text) + b"\n"
    )


def decode(data: bytes, name: str = "the result") -> Result:
    """Decode a result.

    Raises:
        InputError: the text is not a result, or one of another version.
    """
    try:
        header = decode_json(data, _Header, most_integer=MOST_FLOPS)
        kind = header.schema.removeprefix("presim-").partition("/")[0] or header.kind
        if kind != "run":
            what_to_do = "show it with `presim report`, or name a result of `presim run --json`"
            raise InputError(f"{name} is a result of the kind {shortened(kind)!r}, not of a run; {what_to_do}")
        if header.schema_version is None:
            raise FormatError("it has no `schema_version`")
        if header.schema_version > SCHEMA_VERSION:
            versions = f"schema {header.schema_version}, this one reads {SCHEMA_VERSION}"
            raise InputError(f"{name} was written by a newer presim ({versions}); upgrade presim")
        if header.schema_version < 1:
            versions = f"schema {header.schema_version}, this one reads 1 and {SCHEMA_VERSION}"
            raise InputError(f"{name} was written by an older presim ({versions}); create it again with this version")
        if header.schema_version == 1:
            result = to_type(upgrade_1(decode_json(data, most_integer=MOST_FLOPS)), Result)
        else:
            result = decode_json(data, Result, most_integer=MOST_FLOPS)
    except (FormatError, msgspec.MsgspecError, KeyError, TypeError) as error:
        raise InputError(f"{name} is not a result of presim ({error}); make one with `presim run --json`") from error
    if impossible := problem(result):
        raise InputError(f"{name} is damaged: {impossible}; make it again with `presim run --json`")
    return result


def problem(result: Result) -> str:
    """The first figure that no prediction has, as a clause; empty: there is none."""
    return next(_impossible(msgspec.to_builtins(result), "$"), "")


def _impossible(value: Any, path: str) -> Iterator[str]:
    """Figures that no prediction has: a negative time or size, a job without ranks, a number beyond any cluster."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _impossible(part, f"{path}.{key}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _impossible(part, f"{path}[{number}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        key = path.rpartition(".")[2]
        is_amount = key.partition("[")[0].endswith(_NOT_NEGATIVE) and key not in _ANY_SIGN
        lowest = 1 if key in _FROM_ONE else 0 if is_amount else -_MOST
        is_time = key.endswith("_s") and not key.endswith("_per_s")
        highest = _MOST_RANKS if key in _FROM_ONE else _MOST_SECONDS if is_time else _MOST
        if not lowest <= value <= highest:
            yield f"{path} is {value:g}, and lies between {lowest:g} and {highest:g}"


def upgrade_1(content: dict[str, Any]) -> dict[str, Any]:
    """The JSON of schema 1 as schema 2: compared ranks were counted alone, misuse and shared ports were not known."""
    captured, compared = len(content["ranks"]), content["checked_ranks"]
    represented = sum(rank["represented"] for rank in content["ranks"])
    coverage = {
        "captured": captured,
        "compared": compared,
        "assumed": max(represented - captured - compared, 0),
        "unknown": max(content["job"]["world_size"] - represented, 0),
        "undecided": 0,
        "failed": 0,
        "steps": 1,  # compared ranks ran for one step
        "rule": "",
        "rank_reads": [],
    }
    time = {"shared_ports_s": 0.0, **content["time"]}
    return {"misuse": [], **content, "coverage": coverage, "time": time, "schema_version": 2}


def read(path: Path) -> Result:
    """Read a result from a file.

    Raises:
        InputError: the file cannot be read, or is not a result.
    """
    saved_trace = f"`presim simulate {path}` reports on a saved trace"
    advice = saved_trace if names_folder(path) else "name a file that --json wrote"
    return decode(read_unpacked(path, advice), str(path))


def write(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the result to a file."""
    write_file(path, encode(result))


def json_schema() -> bytes:
    """JSON Schema of the results of runs and of serving. ``docs/reference/result.schema.json`` is a copy.

    A result of serving names its variant by ``schema``, one of a run has no such field.
    """
    variants, definitions = msgspec.json.schema_components((Result, ServingResult, DeployResult))
    for variant, schema_name in ((ServingResult, serving.SCHEMA), (DeployResult, deployments.SCHEMA)):
        definition = definitions[variant.__name__]
        definition["properties"]["schema"] |= {"const": schema_name}
        definition["required"] = sorted({*definition["required"], "schema"})
    run = definitions["Result"]
    run["not"] = {"required": ["schema"]}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "oneOf": list(variants), "$defs": definitions}
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"
