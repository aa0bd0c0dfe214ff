"""With a live clock a script's own log shows the simulated times of the cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from presim.evaluation.options import EvaluationOptions
from presim.trace.schema import Kind
from presim.verbs.simulate import evaluate_saved
from support.captured import EXAMPLES, SCRIPTS, run
from support.command import presim
from support.torchtitan import train

pytestmark = pytest.mark.torch_cuda

FAST_HOST = ("--host-factor", "0.1")  # host time counts, though little of it
ONE = ("--gpu", "h100-sxm", "--world-size", "1", "--steps", "0")


def timed(tmp_path: Path, *options: str) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """The step times printed by the training loop, and the result of the same run."""
    ended = presim("run", *ONE, "--quiet", "--json", tmp_path / "r.json", *options, SCRIPTS / "timed_training.py")
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()], json.loads((tmp_path / "r.json").read_text())


def test_a_training_loop_prints_the_result_s_step_time(tmp_path: Path) -> None:
    """Measured by the host's clock after a synchronisation and by CUDA events.

    What the loop does between its measurements counts in the result alone: half a millisecond of 173 on one machine,
    two on a slow one. Of hosts ten times as fast that is less than the tolerance.
    """
    steps, result = timed(tmp_path, "--live", *FAST_HOST)
    for step, expected in list(zip(steps, result["steps"]["times_s"]))[2:]:
        assert step["seconds"] == pytest.approx(expected, rel=0.01)
        assert step["events"] == pytest.approx(expected, rel=0.01)
        assert step["tokens_per_s"] == pytest.approx(65536 / expected, rel=0.01)


@pytest.mark.long
def test_without_host_time_each_run_prints_the_same(tmp_path: Path) -> None:
    """Equal to a float's resolution; only the first step differs, by its set-up."""
    first, result = timed(tmp_path, "--live", "--host-time", "0")
    second, _ = timed(tmp_path, "--live", "--host-time", "0")
    assert [step["events"] for step in first] == [step["events"] for step in second]
    for one, other in zip(first, second):
        assert one["seconds"] == pytest.approx(other["seconds"], abs=1e-8)
    assert first[-1]["seconds"] == pytest.approx(result["step_time_s"], rel=1e-6)


@pytest.mark.long
def test_without_a_live_clock_events_are_simulated_and_repeatable(tmp_path: Path) -> None:
    """Autotuners compare these times: device time, independent of the host."""
    steps, result = timed(tmp_path)
    again, _ = timed(tmp_path)
    assert [step["events"] for step in steps] == [step["events"] for step in again]
    assert steps[-1]["events"] == pytest.approx(result["step_time_s"], rel=0.02)
    seconds = min(step["seconds"] for step in steps)  # of the step that this machine disturbed least
    assert seconds < 0.5 * result["step_time_s"]


@pytest.mark.long
def test_llama_on_128_gpus_prints_the_cluster_s_step_time(tmp_path: Path) -> None:
    """The live time and its result's agree within 1 %, and with a run without a live clock within 2 %."""
    options = ("--gpu", "h100-sxm", "--nodes", "16", "--steps", "0", "--live", "--quiet", "--json", tmp_path / "r.json")
    ended = presim("run", *options, EXAMPLES / "llama_fsdp2.py", "--log")
    printed = [float(seconds) for seconds in re.findall(r"step \d+: ([\d.]+) s", ended.stdout)]
    assert len(printed) == 3, ended.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert printed[-1] == pytest.approx(result["step_time_s"], rel=0.01)
    assert printed[-1] == pytest.approx(
        run("llama_fsdp2.py", "--model", "8b", world_size=128).result.step_time_s, rel=0.02
    )
    peak = float(re.findall(r"([\d.]+) GiB", ended.stdout)[-1])
    assert peak == pytest.approx(result["memory"]["peak_allocated_bytes"] / 2**30, abs=0.01)


@pytest.mark.long
@pytest.mark.needs("torchtitan")
def test_torchtitan_logs_its_result_s_throughput() -> None:
    """Its log lines agree with the simulation of a capture without a live clock within 1 %."""
    each_step = ("--metrics.log_freq", "1")
    still = ("--host-time", "0")
    logged = train("llama3_debugmodel", *each_step, steps=5, ours=("--live", *still))
    offline = train("llama3_debugmodel", *each_step, steps=5, ours=still)
    result = offline.job.result
    tokens = offline.job.trace.manifest.batch["tokens"]
    assert len(logged.tokens_per_s) >= 4
    for tps, seconds in list(zip(logged.tokens_per_s, result.steps.times_s))[2:]:
        assert tps == pytest.approx(tokens / seconds, rel=0.01)
    assert logged.reserved_GiB == offline.reserved_GiB


@pytest.mark.long
@pytest.mark.needs("megatron.core")
def test_megatron_logs_its_result_s_step_time(tmp_path: Path) -> None:
    """By its own timers, on both stages, each of which waits for the other.

    With a live clock the allocator's waits depend on the machine's speed, so that alike ranks may be captured each.
    """
    out = tmp_path / "r.json"
    ended = presim(
        "run", "--live", "--gpu", "h100-sxm", "--world-size", "4", "--ranks", "auto", "--steps", "0", "--quiet",
        "--host-time", "0", "--json", out, EXAMPLES / "megatron_gpt.py", "--model", "tiny", "--micro-batches", "4",
        "--tensor-parallel", "2", "--pipeline-parallel", "2", "--log",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    result = json.loads(out.read_text())
    last = dict(re.findall(r"rank (\d+)\] iteration 4/4 .*?\(ms\): ([\d.]+)", ended.stdout))
    assert {"0", "2"} <= set(last)
    for ms in last.values():
        assert float(ms) / 1e3 == pytest.approx(result["step_time_s"], rel=0.01)


def test_ranks_that_wait_for_each_other_share_one_clock(tmp_path: Path) -> None:
    """Of two stages, one always waits for the other: both measure the result's whole step.

    The result smooths host times that the live clock has shown as they were; of hosts ten times as fast both are short.
    """
    ended = presim(
        "run", "--gpu", "h100-sxm", "--world-size", "2", "--ranks", "all", "--steps", "0", "--live", "--quiet",
        *FAST_HOST, "--save", tmp_path / "job", SCRIPTS / "pipelined.py",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    printed = [json.loads(line) for line in ended.stdout.splitlines()]
    last = {line["rank"]: line["seconds"] for line in printed if line["step"] == 3}
    for rank, seconds in last.items():
        simulated = evaluate_saved(tmp_path / "job", EvaluationOptions(rank=rank, host_factor=0.1))
        waits = np.flatnonzero(simulated.priced.trace.column("kind") == Kind.DEVICE_SYNC)
        begin, end = simulated.timeline.end_ns[waits[-2:]]
        assert seconds == pytest.approx((end - begin) / 1e9, rel=0.01)
    assert last[0] == pytest.approx(last[1], rel=0.01)
