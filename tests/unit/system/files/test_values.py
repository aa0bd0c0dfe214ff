"""Numbers of other tools' files: what is no size, count or time is refused or skipped with its reason."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from presim.composition.launch_files.shapes import shapes
from presim.errors import InputError
from presim.hardware.network.open import bytes_of, open_network, ranks_of
from presim.report import json as report
from presim.serving.calibrate import read_result
from presim.serving.workloads import traces
from presim.serving.workloads.generate import lengths_of
from presim.sources.kineto.events import whole_number
from presim.sources.kineto.kernel_signatures import operands
from presim.studies.validation.serving import predict
from presim.trace import rank_file
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Manifest
from presim.trace.signatures import Copy
from support.profiles import simulated


@pytest.mark.parametrize(
    "length", [True, False, None, 1000.9, "1000.9", "1e400", [1000], "nan", -5, 0, 1 << 40, "1_000"]
)
def test_a_length_that_is_no_whole_number_is_skipped_and_named(tmp_path: Path, length: object) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1000, "output_length": 8},
        {"timestamp": 5, "input_length": length, "output_length": 8},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workload = traces.read_trace(tmp_path / "t.jsonl")
    assert workload.prompt.tolist() == [1000]
    (reason,) = workload.skipped
    assert reason.startswith("row 2: input_length is ")


@pytest.mark.parametrize("stamp", [True, "inf", "-1", 1e300, None])
def test_a_time_that_is_none_is_skipped_and_named(tmp_path: Path, stamp: object) -> None:
    rows = [
        {"timestamp": 7, "input_length": 10, "output_length": 8},
        {"timestamp": stamp, "input_length": 10, "output_length": 8},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [reason.partition(" is ")[0] for reason in traces.read_trace(tmp_path / "t.jsonl").skipped] == [
        "row 2: timestamp"
    ]


def test_whole_numbers_are_read_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"timestamp": "2.5", "input_length": "64", "output_length": 8.0}\n')
    workload = traces.read_trace(tmp_path / "t.jsonl")
    assert (workload.prompt.tolist(), workload.output.tolist()) == ([64], [8])


def test_a_trace_with_an_open_quote_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('TIMESTAMP,ContextTokens,GeneratedTokens\n"2024-05-10 00:00:00,10,5\n')
    with pytest.raises(
        InputError, match=r"cannot be read as Azure LLM inference trace \(line 2: a quote is not closed\); "
    ):
        traces.read_trace(tmp_path / "t.csv")


@pytest.mark.parametrize("word", ["1000.9", "true", "nan", "inf~1", "9" * 400, "1e3", "\u0661"])
def test_a_length_on_the_command_line_is_a_whole_number(word: str) -> None:
    with pytest.raises(InputError, match=r"^a length is 1024, 1024~0\.5 or a file of numbers, not "):
        lengths_of(word)


@pytest.mark.parametrize(
    ("value", "number"), [(5, 5), ("17", 17), (4.0, 4), (True, -1), (1 << 63, -1), ("9" * 30, -1), (0.5, -1), ([1], -1)]
)
def test_an_argument_of_a_profile_is_a_number_of_64_bits(value: object, number: int) -> None:
    assert whole_number(value, -1) == number


@pytest.mark.parametrize("size", [True, -4, 2.5, 1 << 60, "8"])
def test_an_operator_with_an_impossible_size_is_refused(size: object) -> None:
    with pytest.raises(InputError, match=r"^an operator \(External id 7\) has an input with the size "):
        operands({"External id": 7, "Input Dims": [[16, size]], "Input type": ["float"]})


def test_a_job_that_could_not_be_read_back_is_not_saved() -> None:
    build = TraceBuilder(Manifest(world_size=1, rank=0, gpu="h100-sxm", gpus_per_node=1, script="t.py"))
    build.work(Copy("h2d", True))
    build.step()
    with pytest.raises(InputError, match=r"^the trace of rank 0 cannot be saved: Expected `int`, got `bool`"):
        rank_file.encode(build.trace())


def _result(**changes: Any) -> bytes:
    result = simulated().result
    job = msgspec.structs.replace(
        result.job, **{key: value for key, value in changes.items() if key in ("world_size", "nodes")}
    )
    rest = {key: value for key, value in changes.items() if key not in ("world_size", "nodes")}
    return report.encode(msgspec.structs.replace(result, job=job, **rest))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"world_size": 0}, "$.job.world_size is 0, and lies between 1 and 1.04858e+06"),
        ({"nodes": 1 << 40}, "$.job.nodes is 1.09951e+12, and lies between 1 and 1.04858e+06"),
        ({"step_time_s": -0.5}, "$.step_time_s is -0.5, and lies between 0 and 1e+12"),
        ({"step_time_low_s": 1e300}, "$.step_time_low_s is 1e+300, and lies between 0 and 1e+12"),
    ],
)
def test_a_result_that_no_prediction_has_is_refused(changes: dict[str, Any], message: str) -> None:
    report.decode(_result())
    with pytest.raises(InputError) as refused:
        report.decode(_result(**changes), "r.json")
    assert str(refused.value) == f"r.json is damaged: {message}; make it again with `presim run --json`"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("completed", True),
        ("completed", 10.5),
        ("mean_tpot_ms", "8"),
        ("burstiness", [1]),
        ("input_lens", [10, True]),
        ("start_times", [0.0, -1.0]),
        ("output_lens", 7),
    ],
)
def test_a_benchmark_with_a_value_of_another_type_is_refused(tmp_path: Path, key: str, value: object) -> None:
    good = {
        "completed": 10,
        "mean_tpot_ms": 8.0,
        "total_input_tokens": 100,
        "total_output_tokens": 100,
        "request_rate": "inf",
    }
    (tmp_path / "b.json").write_text(json.dumps(good))
    read_result(tmp_path / "b.json")
    (tmp_path / "b.json").write_text(json.dumps({**good, key: value}))
    with pytest.raises(InputError, match=f"b\\.json: {key} is "):
        read_result(tmp_path / "b.json")


@pytest.mark.parametrize("value", [True, 2.5, -8, 1 << 40, "8"])
def test_a_config_with_a_size_that_is_none_is_refused(value: object) -> None:
    good = dict.fromkeys(
        ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"), 8
    )
    shapes({"model_type": "llama", **good})
    for key in ("hidden_size", "num_key_value_heads"):
        with pytest.raises(
            InputError, match=f"^the config has {key} = .*; a size is a whole number up to 2,147,483,648$"
        ):
            shapes({"model_type": "llama", **good, key: value})


@pytest.mark.parametrize("value", ["1000.9", "inf", "nan", "-1", "many"])
def test_a_published_run_with_a_value_that_is_no_count_has_a_reason(value: str) -> None:
    row = {"model": "llama3-8b", "gpu": "h100-sxm", "isl": value, "osl": "8", "concurrency": "1"}
    (predicted,) = predict([row])
    assert predicted["reason"].startswith(f"isl is '{value}', which is not a ")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (ranks_of, "0-99999999999"),
        (ranks_of, "0-18446744073709551616"),
        (ranks_of, "7-1048576"),
        (ranks_of, "\u0661"),
        (bytes_of, "1.2.3MiB"),
        (bytes_of, "9" * 400),
        (bytes_of, "99999999999GiB"),
        (bytes_of, "0"),
    ],
)
def test_ranks_and_sizes_beyond_what_exists_are_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(InputError, match=r"is not a"):
        read(text)


_WIRE = "400Gbps 0.0005ms 0"
_LINK = "a link connects 0 and -3, but there are 6 vertices"
_RADIX = "tier 0 has 0 links down; a switch has 1 to 65,536"
_TIER = "Tiers 1\nTier 0\nDownlink_speed_Gbps 400\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s", f"6 2 0 4 2 H100\n2 3 4 5\n0 -3 {_WIRE}\n1 2 {_WIRE}\n", _LINK),
        ("s", "6 9 0 4 2 H100\n", "the header names 6 vertices, 9 GPUs per server, 0 and 4 switches and 2 links"),
        ("s", f"{1 << 64} 2 0 4 2 H100\n", "there are at most 1,048,576 vertices"),
        ("t.xml", "<system>" + "<pci>" * 5000 + "</pci>" * 5000 + "</system>", "it is nested deeper than 100 levels"),
        ("t.xml", '<!DOCTYPE s [<!ENTITY a "b">]><s>&a;</s>', "it declares entities"),
        ("t.topo", f"Nodes 8\n{_TIER}Radix_Down 0\n", _RADIX),
        ("t.topo", f"Nodes {'9' * 400}\n{_TIER}Radix_Down 4\n", "invalid"),
    ],
)  # fmt: skip
def test_a_topology_with_impossible_numbers_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as refused:
        open_network(tmp_path / name)
    assert message in str(refused.value)


def test_a_profile_s_world_has_an_end(tmp_path: Path) -> None:
    from presim.sources.kineto.events import read

    body = {"traceEvents": [], "distributedInfo": {"rank": 0, "world_size": 1 << 62}}
    (tmp_path / "p.json.gz").write_bytes(gzip.compress(json.dumps(body).encode()))
    with pytest.raises(
        InputError, match=r"world_size: 4611686018427387904 is not a number of GPUs from 1 to 1,048,576$"
    ):
        read(tmp_path / "p.json.gz")
