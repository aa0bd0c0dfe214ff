"""A cluster that differs from its description is found from a run on it, and what supports a change is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from presim.cli import main
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate as run
from presim.evaluation.evaluator import evaluate
from presim.evaluation.options import ClusterOptions
from presim.hardware import choose_cluster
from presim.studies.calibrate import calibration_text, parts
from presim.studies.calibrate.correct_cluster import calibrate_job
from presim.studies.calibrate.logs import median_step_times_s, step_times_s
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Gemm
from support.profiles import CLUSTER, exported, program

WIDE = choose_cluster(gpu="h100-sxm", nodes=2, gpus_per_node=8)
SLOW = parts.with_factors(CLUSTER, {"arithmetic": 0.8, "nvlink": 0.7})  # what the machine really is


def traces() -> list[Trace]:
    return [program(rank, layers=12) for rank in (0, 1)]


def saved(folder: Path) -> Path:
    Job(tuple(traces())).save(folder / "job")
    return folder / "job"


def test_a_profile_finds_the_rates_of_the_machine_it_was_recorded_on(tmp_path: Path) -> None:
    job = Job(tuple(traces()))
    paths = exported(tmp_path, run(job, SLOW, Options(host_factor=1.0, contention=False)))
    found = calibrate_job(list(map(str, paths)), ClusterOptions())
    factors = {change.part: change.factor for change in found.changes}
    assert factors["arithmetic"] == pytest.approx(0.8, rel=0.02)
    assert found.held_out
    assert abs(found.after_s / found.measured_s - 1) < abs(found.before_s / found.measured_s - 1)
    for change in found.changes:
        assert "kinds of work" in change.support
        if change.before is None or change.after is None:
            start = (
                f"{parts.WORDS[change.part]} rests on one kind of work: its rate and its latency cannot be told apart"
            )
            assert any(note.startswith(start) for note in found.notes)
        else:
            assert change.after < change.before
    assert any("host factor stays" in note for note in found.notes)


@pytest.mark.parametrize(
    "planted",
    [
        {"arithmetic": 0.769},
        {"memory": 0.85},
        {"arithmetic": 0.8, "nvlink": 0.7},
        {"arithmetic": 0.9, "memory": 0.8, "nvlink": 0.75},
        {},
    ],
)
def test_planted_rates_are_recovered_although_work_overlaps(tmp_path: Path, planted: dict[parts.Part, float]) -> None:
    """What runs beside a collective is slowed by it; that slowdown is not taken for a slow rate."""
    machine = parts.with_factors(CLUSTER, planted)
    paths = exported(tmp_path, run(Job.of(traces()), machine, Options(host_factor=1.0)))
    fitted = calibrate_job(list(map(str, paths)), ClusterOptions())
    factors = {change.part: change.factor for change in fitted.changes}
    assert factors == pytest.approx(planted, rel=0.03)
    assert fitted.after_s == pytest.approx(fitted.measured_s, rel=0.03)


def across_nodes(rank: int) -> Trace:
    """Collectives of several sizes over the network, one after the other, and products between them."""
    world = tuple(range(16))
    build = TraceBuilder(
        Manifest(16, rank, "h100-sxm", 8, "t.py", (Group("dp", world, 16),), node="hgx-h100", fabric=WIDE.fabric.id)
    )
    for _ in range(3):
        for size in (16, 64, 256):
            build.work(Gemm(4096, 4096, 64 * size, 1, "bfloat16"), host_ns=9_000, phase=Phase.FORWARD)
            build.work(Collective("all_reduce", size << 20, "bfloat16", 0), host_ns=4_000, phase=Phase.BACKWARD)
        build.stream_sync(stream=0, host_ns=2_000)
        build.step(host_ns=30_000)
    return build.trace()


def test_a_planted_network_is_recovered_from_one_rank_of_many(tmp_path: Path) -> None:
    """One profile of sixteen ranks stands for all."""
    machine = parts.with_factors(WIDE, {"network": 0.6})
    job = run(Job([across_nodes(0)], stands_for={0: range(1, 16)}), machine, Options(host_factor=1.0))
    fitted = calibrate_job(list(map(str, exported(tmp_path, job))), ClusterOptions())
    assert {change.part: change.factor for change in fitted.changes} == pytest.approx({"network": 0.6}, rel=0.03)


def test_planted_hosts_are_recovered_beside_slow_arithmetic(tmp_path: Path) -> None:
    """The captured job tells the hosts' factor, the profile the rate."""
    machine = parts.with_factors(CLUSTER, {"arithmetic": 0.769})
    paths = exported(tmp_path, run(Job.of(traces()), machine, Options(host_factor=1.6)))
    captured = [
        dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, reference_host=True))
        for trace in traces()
    ]
    Job(tuple(captured)).save(tmp_path / "job")
    fitted = calibrate_job(list(map(str, paths)), ClusterOptions(), trace=tmp_path / "job")
    factors = {change.part: change.factor for change in fitted.changes}
    assert factors == pytest.approx({"arithmetic": 0.769, "host": 1.6}, rel=0.03)


def always_beside(rank: int) -> Trace:
    """Products on one stream under collectives on another, all the time."""
    build = TraceBuilder(msgspec.structs.replace(program(rank).manifest))
    for _ in range(3):
        for size in (1, 2, 3, 4):
            build.work(Collective("all_reduce", 512 << 20, "bfloat16", 0), stream=1, phase=Phase.BACKWARD)
            build.work(Gemm(1024 * size, 4096, 4096, 1, "bfloat16"), host_ns=900, phase=Phase.FORWARD)
        build.device_sync()
        build.step()
    return build.trace()


def test_slow_arithmetic_that_always_overlaps_is_not_told_from_overlap(tmp_path: Path) -> None:
    machine = parts.with_factors(CLUSTER, {"arithmetic": 0.7})
    paths = exported(tmp_path, run(Job.of([always_beside(0), always_beside(1)]), machine, Options(host_factor=1.0)))
    fitted = calibrate_job(list(map(str, paths)), ClusterOptions())
    assert "arithmetic" not in {change.part for change in fitted.changes}
    assert any(
        note.startswith(
            "GPU, arithmetic stays: all 4 kinds of such work ran beside other work, where a slow rate and a"
        )
        for note in fitted.notes
    )


def test_the_file_that_is_written_is_the_cluster_that_was_found(tmp_path: Path) -> None:
    factors: dict[parts.Part, float] = {"arithmetic": 0.8, "memory": 0.9, "nvlink": 0.7, "network": 1.1, "host": 1.4}
    wide = choose_cluster(gpu="h100-sxm", nodes=4, gpus_per_node=8)
    target = parts.with_factors(wide, factors)
    path = tmp_path / "mine.toml"
    parts.write(target, path, "presim calibrate job a.json")
    again = choose_cluster(cluster=path)
    assert again.node.host_factor == 1.4
    assert again.nodes == 4
    assert again.gpu.id == "h100-sxm"
    assert again.gpu.bf16_flops == pytest.approx(target.gpu.bf16_flops, rel=1e-9)
    assert again.gpu.nvlink_bytes_per_s == pytest.approx(target.gpu.nvlink_bytes_per_s, rel=1e-9)
    assert again.fabric.port_bytes_per_s == pytest.approx(target.fabric.port_bytes_per_s, rel=1e-9)
    with pytest.raises(InputError, match="is there already and is never overwritten"):
        parts.write(target, path, "again")


def test_a_step_time_changes_what_the_step_depends_on_most(tmp_path: Path) -> None:
    captured = [
        dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, reference_host=True))
        for trace in traces()
    ]
    Job(tuple(captured)).save(job := tmp_path / "job")
    loaded = Job.load(job)
    slower = parts.with_factors(CLUSTER, {"host": 3.0})
    measured = evaluate(loaded, slower).step_time_s
    found = calibrate_job([str(measured)], ClusterOptions(), trace=job, change="host")
    assert [change.part for change in found.changes] == ["host"]
    assert found.after_s == pytest.approx(measured, rel=0.01)
    assert not found.held_out
    assert "used; a second one" in calibration_text.text(calibration_text.report(found, "mine.toml"))


def test_a_log_is_divided_into_what_is_used_and_what_is_not(tmp_path: Path) -> None:
    job = saved(tmp_path)
    base = evaluate(Job.load(job), CLUSTER).step_time_s
    assert base is not None
    log = tmp_path / "train.log"
    log.write_text("\n".join(f"step {at} | elapsed time per iteration (ms): {1.05e3 * base:.6f} |" for at in range(12)))
    found = calibrate_job([str(log)], ClusterOptions(), trace=job)
    assert found.held_out
    assert found.after_s == pytest.approx(1.05 * base, rel=0.01)
    assert found.before_s == pytest.approx(base)


def test_step_times_are_read_in_their_units(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("step_time: 250 ms\niter time: 0.25\nStep time = 0.26 s\n")
    assert step_times_s(str(log)) == [0.25, 0.25, 0.26]
    assert median_step_times_s([9.0, 9.0, 9.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]) == (1.0, 2.0)
    assert median_step_times_s([1.0]) == (1.0, None)


def test_what_cannot_be_used_ends_in_a_sentence(tmp_path: Path) -> None:
    job = saved(tmp_path)
    log = tmp_path / "empty.log"
    log.write_text("loss 2.3\n")
    for run_, trace, message in (
        ([str(log)], job, "names no step times"),
        (["none.log"], job, "cannot read none.log"),
        (["-1"], job, "says that a step took -1 s"),
        (["1.5"], None, "name its captured folder with --trace"),
        (["1", "2"], job, "2 runs are named"),
        (["50"], job, "cannot be explained by"),
    ):
        with pytest.raises(InputError, match=message):
            calibrate_job(run_, ClusterOptions(), trace=trace)


def test_the_verb_writes_a_new_file_and_never_overwrites(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    job = saved(tmp_path)
    base = evaluate(Job.load(job), CLUSTER).step_time_s
    assert base is not None
    arguments = ["calibrate", "job", f"{base * 1.1:.9f}", "--trace", str(job), "--out", str(tmp_path / "mine.toml")]
    assert main.run(arguments) == 0
    said = capsysbinary.readouterr().out.decode()
    assert "1 change" in said
    assert main.run(arguments) == 2
    assert b"never overwritten" in capsysbinary.readouterr().err
    assert main.run(["simulate", str(job), "--cluster", str(tmp_path / "mine.toml"), "-q"]) == 0
