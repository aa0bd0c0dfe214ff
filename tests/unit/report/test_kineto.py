"""What presim writes has the layout of PyTorch's profiler, event by event."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from conformance.strategies import signatures
from presim.cli import main
from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware import choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Kind, Manifest
from presim.trace.signatures import Signature
from support.profiles import content, exported, simulated


def test_kernels_calls_and_arrows_share_correlations_and_times_are_the_simulated_ones(tmp_path: Path) -> None:
    found = simulated()
    paths = exported(tmp_path, found)
    assert [path.name for path in paths] == ["rank-0.pt.trace.json.gz", "rank-1.pt.trace.json.gz"]
    body = content(paths[1])
    assert body["distributedInfo"]["rank"] == 1
    assert body["deviceProperties"][0]["name"] == "NVIDIA H100 80GB HBM3"
    complete = [event for event in body["traceEvents"] if event["ph"] == "X"]
    assert all(event["dur"] >= 0 for event in complete)
    device = [event for event in complete if event["cat"] in ("kernel", "gpu_memcpy")]
    calls = {event["args"]["correlation"]: event for event in complete if event["cat"] == "cuda_runtime"}
    for event in device:
        assert calls[event["args"]["correlation"]]["ts"] < event["ts"]
        assert event["tid"] == event["args"]["stream"] >= 7
    starts = {event["id"] for event in body["traceEvents"] if event["ph"] == "s"}
    assert starts == {event["id"] for event in body["traceEvents"] if event["ph"] == "f"}
    assert starts == {event["args"]["correlation"] for event in device}
    timeline = found.timelines[1]
    work = found.ranks[1].trace.mask(Kind.WORK, Kind.COLLECTIVE)
    last = int(timeline.end_ns[work].max())
    assert max(event["ts"] + event["dur"] for event in device) * 1000 == pytest.approx(last, abs=1)
    steps = sorted(event["name"] for event in complete if event["name"].startswith("ProfilerStep#"))
    assert steps == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]


def test_collectives_carry_the_fields_of_pytorch(tmp_path: Path) -> None:
    body = content(exported(tmp_path, simulated())[0])
    nccl = next(event for event in body["traceEvents"] if event["name"].startswith("ncclDevKernel_AllReduce"))
    args = nccl["args"]
    assert (args["Collective name"], args["dtype"], args["In msg nelems"]) == ("allreduce", "BFloat16", 4 << 20)
    assert (args["Group size"], args["Process Group Ranks"]) == (2, "[0, 1]")


def test_every_rank_of_the_world_has_a_profile_with_the_times_of_the_rank_that_represents_it(tmp_path: Path) -> None:
    """`--ranks-simulated all` writes all of them, as `--chakra` does; without it only the ranks that differ."""
    job = str(tmp_path / "job")
    plan = ["--gpu", "h100-sxm", "--world-size", "8", "--seq", "512", "--pp", "2", "--global-batch", "8"]
    assert main.run(["compose", "llama3-1b", *plan, "--save", job, "-q"]) == 0
    assert main.run(["simulate", job, "--kineto", str(tmp_path / "differ"), "-q"]) == 0
    assert main.run(["simulate", job, "--ranks-simulated", "all", "--kineto", str(tmp_path / "all"), "-q"]) == 0
    different = {path.name: content(path) for path in (tmp_path / "differ").iterdir()}
    bodies = {path.name: content(path) for path in (tmp_path / "all").iterdir()}
    assert sorted(bodies) == [f"rank-{rank}.pt.trace.json.gz" for rank in range(8)]
    assert len(different) < 8
    for name, body in bodies.items():
        rank = int(name.split(".")[0].removeprefix("rank-"))
        assert body["distributedInfo"]["rank"] == rank
        assert body["presim"]["stands_for"] == []
        groups = [
            event["args"]["Process Group Ranks"]
            for event in body["traceEvents"]
            if event["ph"] == "X" and "Process Group Ranks" in event.get("args", {})
        ]
        assert groups
        assert all(rank in json.loads(group) for group in groups)
    for body in different.values():
        for rank in [body["distributedInfo"]["rank"], *body["presim"]["stands_for"]]:
            other = bodies[f"rank-{rank}.pt.trace.json.gz"]
            assert device_times(other) == device_times(body)


def device_times(body: dict[str, Any]) -> list[tuple[str, float, float]]:
    events = (event for event in body["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy"))
    return [(event["name"], event["ts"], event["dur"]) for event in events]


def test_the_same_job_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (exported(tmp_path / name, simulated()) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_tools_find_the_rank_by_the_pattern_that_pytorch_prints(tmp_path: Path) -> None:
    text = gzip.decompress(exported(tmp_path, simulated())[1].read_bytes())[:1000]
    assert re.search(rb'"rank":\s+1,', text)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(signatures())
def test_every_kind_of_work_is_written(tmp_path: Path, signature: Signature) -> None:
    """Sparse products among them, whose block is not that of a launch."""
    build = TraceBuilder(
        Manifest(world_size=1, rank=0, gpu="h100-sxm", gpus_per_node=1, script="t.py", node="hgx-h100")
    )
    build.work(signature, host_ns=5_000)
    build.step()
    evaluation = evaluate(
        Job.of([build.trace()]), choose_cluster(gpu="h100-sxm", world_size=1), Options(host_factor=1.0)
    )
    (path,) = exported(tmp_path, evaluation)
    kernels = [
        event for event in content(path)["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    assert len(kernels) == 1
