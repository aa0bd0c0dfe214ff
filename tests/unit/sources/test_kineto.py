"""A profile becomes a job whose replay takes as long as the profile says; what cannot be read ends in a sentence."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from presim.capture.reading.launch_operators import Operand
from presim.cost import profiled
from presim.cost.price import Origin
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate as run
from presim.evaluation.evaluator import evaluate
from presim.hardware import choose_cluster
from presim.sources import source_conformance
from presim.sources.kineto.kernel_signatures import _outputs
from presim.sources.kineto.profile_source import _message_ends
from presim.sources.readers import open_files
from presim.sources.source import SourceRequest
from presim.trace.collective import Collective
from presim.trace.job import Job
from presim.trace.schema import Kind
from presim.trace.signatures import Copy, Gemm
from support.profiles import CLUSTER, as_pytorch, content, exported, program, simulated


def imported(paths: list[Path], **said: Any) -> Job:
    return open_files(paths, SourceRequest(**said)).job()


def test_an_export_comes_back_with_the_same_step_time_and_work(tmp_path: Path) -> None:
    original = simulated()
    source = open_files(exported(tmp_path, original), SourceRequest())
    job = source_conformance.check_source(source)
    assert [trace.manifest.rank for trace in job.traces] == [0, 1]
    again = evaluate(job, CLUSTER)
    assert original.result.step_time_s is not None
    assert again.step_time_s == pytest.approx(original.result.step_time_s, rel=1e-3)
    before, after = program(0), job.traces[0]
    for kind in (Kind.WORK, Kind.COLLECTIVE, Kind.STEP):
        assert int(after.mask(kind).sum()) == int(before.mask(kind).sum())
    assert set(before.signatures) == set(after.signatures)
    assert after.manifest.groups == before.manifest.groups


@pytest.mark.parametrize("waits", [True, False])
def test_what_pytorch_itself_records_suffices_to_replay_the_step_within_two_percent(
    tmp_path: Path, waits: bool
) -> None:
    original = simulated()
    paths = [as_pytorch(path, waits=waits) for path in exported(tmp_path, original)]
    job = imported(paths)
    assert original.result.step_time_s is not None
    assert evaluate(job, CLUSTER).step_time_s == pytest.approx(original.result.step_time_s, rel=0.02)
    works = job.traces[0].signatures
    assert Gemm(2048, 4096, 4096, 1, "bfloat16") in works
    assert Collective("all_reduce", 8 << 20, "bfloat16", 0) in works
    assert Copy("h2d", 1 << 20, pinned=True) in works
    assert any("inferred from kernel times" in note for note in job.notes) is not waits


def test_the_replay_of_a_profile_has_no_doubt_about_other_hosts(tmp_path: Path) -> None:
    job = imported(exported(tmp_path, simulated()))
    doubts = [
        next(share.uncertainty for share in evaluate(job, cluster).provenance.by_origin if share.name == "host")
        for cluster in (CLUSTER, choose_cluster(gpu="b200", world_size=2))
    ]
    assert doubts[0] == pytest.approx(0.02)
    assert doubts[1] > 0.3


def test_clocks_of_ranks_that_disagree_change_nothing(tmp_path: Path) -> None:
    """Ranks meet in their collectives, whatever their clocks say."""
    paths = exported(tmp_path, simulated())
    before = imported(paths)
    body = content(paths[1])
    for event in body["traceEvents"]:
        if "ts" in event:
            event["ts"] += 5e6
    paths[1].write_bytes(gzip.compress(json.dumps(body).encode()))
    after = imported(paths)
    assert evaluate(after, CLUSTER).step_time_s == evaluate(before, CLUSTER).step_time_s
    for one, other in zip(before.traces, after.traces):
        assert one.signatures == other.signatures


def test_one_step_is_repeated(tmp_path: Path) -> None:
    original = simulated()
    job = imported(exported(tmp_path, original), step=1)
    assert len(job.traces[0].steps()) == 3
    assert original.result.step_time_s is not None
    assert evaluate(job, CLUSTER).step_time_s == pytest.approx(original.result.step_time_s, rel=0.01)
    assert "step 1 of rank-0" in job.notes[0]


def test_kernels_that_overlap_in_a_profile_overlap_in_its_replay(tmp_path: Path) -> None:
    """The engine's own rule that compute kernels run one after the other is not for measured ones."""
    paths = exported(tmp_path, simulated())
    body = content(paths[0])
    kernels = [event for event in body["traceEvents"] if event.get("cat") == "kernel"]
    second = dict(kernels[-1], tid=99, args={**kernels[-1]["args"], "stream": 99, "correlation": 10**6})
    launch = next(
        event
        for event in body["traceEvents"]
        if event.get("cat") == "cuda_runtime" and event["args"]["correlation"] == kernels[-1]["args"]["correlation"]
    )
    body["traceEvents"] += [second, dict(launch, args={**launch["args"], "correlation": 10**6})]
    paths[0].write_bytes(gzip.compress(json.dumps(body).encode()))
    job = imported([paths[0]], missing="same")
    found = run(job, CLUSTER)
    work = found.priced.trace.mask(Kind.WORK)
    starts = sorted(zip(found.timeline.start_ns[work], found.timeline.end_ns[work]))[-2:]
    assert starts[1][0] < starts[0][1]


def test_other_hardware_scales_what_was_measured_and_says_how_wide(tmp_path: Path) -> None:
    paths = [as_pytorch(path) for path in exported(tmp_path, simulated())]
    job = imported(paths)
    other = choose_cluster(gpu="b200", world_size=2)
    here, there = (run(job, cluster) for cluster in (CLUSTER, other))
    for before, after, signature in zip(here.priced.prices, there.priced.prices, job.traces[0].signatures):
        assert before.origin is Origin.MEASURED
        if isinstance(signature, Gemm):
            assert after.duration_ns < before.duration_ns
            assert after.estimator == profiled.SCALED
            assert after.uncertainty >= profiled.SCALED_UNCERTAINTY
    names = {price.estimator for price in there.priced.prices}
    assert profiled.BY_RATE in names
    assert there.result.step_time_s is not None
    assert here.result.step_time_s is not None
    assert there.result.step_time_s < here.result.step_time_s


def test_without_shapes_kernels_go_by_datasheet_rates_and_the_result_says_so(tmp_path: Path) -> None:
    paths = [as_pytorch(path, shapes=False) for path in exported(tmp_path, simulated())]
    job = imported(paths)
    assert any("no shapes" in note for note in job.notes)
    prices = run(job, choose_cluster(gpu="b200", world_size=2)).priced.prices
    assert {price.uncertainty for price in prices if price.origin is Origin.GUESSED} == {profiled.RATE_UNCERTAINTY}


@pytest.mark.parametrize(
    ("name", "shapes", "elements"),
    [
        ("aten::embedding", [[32000, 4096], [2, 512]], 2 * 512 * 4096),  # a row for each index
        ("aten::gather", [[4, 100, 5000], [4, 100, 1]], 4 * 100),  # an element for each index
        ("sgl_kernel::rotary_embedding", [[8192], [8192, 4096], [8192, 1024]], 8192 * 4096),  # positions, queries, keys
    ],
)
def test_assumed_results_of_index_operators_follow_their_library(
    name: str, shapes: list[list[int]], elements: int
) -> None:
    """What is named like PyTorch's index operators elsewhere has its operands in another order."""
    inputs = tuple(Operand("bfloat16", math.prod(shape), True, tuple(shape)) for shape in shapes)
    (output,) = _outputs(name, inputs)
    assert output.elements == elements


def edited(path: Path, change: Any) -> Path:
    body = content(path)
    change(body)
    path.write_bytes(gzip.compress(json.dumps(body).encode()))
    return path


def no_steps(body: Any) -> None:
    body["traceEvents"] = [event for event in body["traceEvents"] if "ProfilerStep" not in event["name"]]


def no_work(body: Any) -> None:
    no_steps(body)
    no_kernels(body)


def negative(body: Any) -> None:
    next(event for event in body["traceEvents"] if event.get("cat") == "kernel")["dur"] = -5


def no_kernels(body: Any) -> None:
    body["traceEvents"] = [event for event in body["traceEvents"] if event.get("cat") not in ("kernel", "gpu_memcpy")]


def no_day(body: Any) -> None:
    body["traceEvents"][-2]["ts"] = body["traceEvents"][20]["ts"] = 1e30


def damaged(body: Any) -> None:
    next(event for event in body["traceEvents"] if event.get("cat") == "kernel")["args"]["presim signature"] = "{"


def no_gpu(body: Any) -> None:
    del body["presim"]
    body["deviceProperties"] = [{"id": 0, "name": "Imaginary 9000"}]


def other_world(body: Any) -> None:
    body["distributedInfo"]["world_size"] = 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_work, "has no GPU work: record it with ProfilerActivity.CUDA, on a GPU, and call prof.step"),
        (negative, r"has a negative duration \(-5 us\); record"),
        (no_kernels, "has no GPU work in steps 0, 1, 2; record it with ProfilerActivity.CUDA"),
        (no_day, "no profile spans more than a day; record it again"),
        (damaged, r"the presim signature of .* is damaged \(.*\); export the profile again"),
        (no_gpu, "names a GPU that the catalogue does not have, 'Imaginary 9000'; give it with --gpu"),
        (other_world, "belongs to a job of 4 ranks, .* to one of 2; give files of one job"),
    ],
)
def test_a_profile_that_cannot_be_used_ends_in_a_sentence(tmp_path: Path, change: Any, message: str) -> None:
    paths = exported(tmp_path, simulated())
    edited(paths[0], change)
    with pytest.raises(InputError, match=message):
        imported(paths)


def different_kernels(body: Any) -> None:
    no_steps(body)
    for number, event in enumerate(body["traceEvents"]):
        if event.get("cat") == "kernel":
            event["name"] += f"_{number}"


@pytest.mark.parametrize(
    ("change", "step", "steps"),
    [
        (no_steps, "a step is what is launched again and again", 1),
        (different_kernels, "all of it counts as one step", 3),
    ],
)
def test_a_profile_without_steps_has_those_that_its_launches_show(
    tmp_path: Path, change: Any, step: str, steps: int
) -> None:
    original = simulated()
    paths = exported(tmp_path, original)
    for path in paths:
        edited(path, change)
    job = imported(paths)
    assert any(f"marks no steps (prof.step() was not called): {step}" in note for note in job.notes)
    assert original.result.step_time_s is not None
    assert evaluate(job, CLUSTER).step_time_s == pytest.approx(steps * original.result.step_time_s, rel=0.05)


def test_files_that_are_damaged_missing_or_twice_are_named(tmp_path: Path) -> None:
    paths = exported(tmp_path, simulated())
    with pytest.raises(InputError, match=r"1 of 2 ranks have no profile \(1\): give their files too"):
        imported(paths[:1])
    with pytest.raises(InputError, match="are both of rank 0"):
        imported([paths[0], paths[0]])
    with pytest.raises(InputError, match="has no step 7; it has steps 0, 1, 2"):
        imported(paths, step=7)
    with pytest.raises(InputError, match="no source is called 'vtune'"):
        open_files(paths, SourceRequest(), "vtune")
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"is cut short or damaged \([\d,]+ bytes of gzip"):
        imported(paths)
    paths[0].write_bytes(gzip.decompress(whole)[:-100])
    with pytest.raises(InputError, match="is cut short or damaged"):
        imported(paths)
    paths[0].write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        imported(paths)
    paths[0].write_bytes(b'{"a": 1}')
    with pytest.raises(InputError, match="is not a Chrome trace"):
        imported(paths)
    with pytest.raises(InputError, match="does not exist"):
        imported([tmp_path / "none.json"])


def test_ranks_that_send_both_ways_are_matched_by_pair() -> None:
    """The n-th exchange of a pipeline's rank is not the n-th of every rank of its group."""
    ranks = (0, 8, 16, 24)
    both = Collective("send_recv", 8, "bfloat16", 0, 2)
    assert (
        _message_ends(both, ranks, 8)
        == _message_ends(Collective("send_recv", 8, "bfloat16", 0, 1), ranks, 16)
        == (8, 16, -1)
    )
    assert _message_ends(Collective("send", 8, "bfloat16", 0, 2), ranks, 8) == (8, 16)
    assert _message_ends(Collective("recv", 8, "bfloat16", 0, 1), ranks, 16) == (8, 16)
    assert _message_ends(Collective("all_reduce", 8, "bfloat16", 0), ranks, 8) == ()
