"""A graph in pipeline stages: what passes conserve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim import hardware
from presim.composition import stage_split
from presim.composition.compose import Composed, compose
from presim.composition.passes import shared_root, zero_bubble
from presim.composition.plan import Plan
from presim.composition.plan_check import check as check_plan
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.trace import job_store
from presim.trace.job import Job
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Attention, Gemm
from presim.trace.trace_invariants import check
from support.long_cases import examples
from support.models import llama, qwen_moe

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)


@given(st.integers(1, 200), st.integers(1, 16))
def test_blocks_are_shared_out_as_equal_as_can_be(count: int, number: int) -> None:
    sizes = stage_split.even_sizes(count, number)
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert sizes[0] == min(sizes) or count % number == number - 1 or number <= 2


def flops(trace: Trace) -> int:
    chosen = trace.columns["signature"][trace.steps()[-1]]
    work = (trace.signatures[index] for index in chosen[chosen >= 0].tolist())
    return sum(one.flops for one in work if isinstance(one, (Gemm, Attention)))


def entries(trace: Trace) -> list[tuple[int, ...]]:
    """What the entries are, sorted, but for the memory that the allocator takes from the device."""
    taken = [trace.columns[name].tolist() for name in ("kind", "stream", "signature", "scope")]
    return sorted(entry for entry in zip(*taken) if entry[0] != Kind.SEGMENT_ALLOC)


def made(**plan: object) -> Composed:
    return compose(llama(), Plan(sequence=256, global_batch=16, **plan), CLUSTER)  # type: ignore[arg-type]


@pytest.mark.torch_cuda
@settings(max_examples=examples(5), deadline=None)
@given(
    st.sampled_from(
        (
            *((2, 1, "gpipe"), (4, 1, "1f1b"), (2, 2, "interleaved"), (2, 1, "zero-bubble"), (2, 2, "zero-bubble")),
            (2, 2, "dualpipev"),
        )
    ),
    st.sampled_from(("none", "full")),
)
def test_stages_conserve_flops_and_parameters_and_their_messages_meet(
    shape: tuple[int, int, str], recompute: str
) -> None:
    """Together they do what one rank does with as many micro-batches; the job's simulation ends."""
    pipeline, virtual, schedule = shape
    job = made(pipeline=pipeline, virtual=virtual, schedule=schedule, recompute=recompute)
    (whole,) = made(recompute=recompute).traces
    for trace in job.traces:
        check(trace)
    assert sum(map(flops, job.traces)) == flops(whole) * pipeline
    manifests = [trace.manifest for trace in job.traces]
    assert sum(one.model["parameters_local"] for one in manifests) == pytest.approx(
        llama().parameter_count() * pipeline / 8
    )
    covered = sorted([*job.stands_for, *(rank for ranks in job.stands_for.values() for rank in ranks)])
    assert covered == list(range(8))
    result = evaluate(job, CLUSTER).result
    assert result.step_time_s is not None


@pytest.mark.torch_cuda
def test_backward_in_two_parts_conserves_products_and_gradients() -> None:
    """Gradients of weights come last, and no input waits for one."""
    split = zero_bubble.apply(llama())
    apart = [segment for segment in split.segments if segment.weights]
    assert all(not segment.gradients for segment in split.segments if segment.backward and not segment.weights)
    whole = [segment for segment in llama().segments if segment.backward]
    assert [segment.gradients.keys() for segment in apart] == [segment.gradients.keys() for segment in whole]
    nodes = sum(len(segment.nodes) for segment in split.segments)
    assert nodes == sum(len(segment.nodes) for segment in llama().segments) + len(apart)  # what keeps saved values
    blocks = next(segment for segment in apart if segment.name)
    assert sum(node.operator == "aten::mm" for node in blocks.nodes) == 7  # of a layer's matrices
    assert zero_bubble.apply(split) == split


@pytest.mark.torch_cuda
def test_weights_that_wait_fill_the_bubble() -> None:
    """On hosts that take no time, the first stage waits less than with 1F1B."""
    waits = []
    for schedule in ("1f1b", "zero-bubble"):
        job = made(pipeline=4, schedule=schedule)
        options = Options(host_factor=0.0)
        result = evaluate(job, CLUSTER, options).result
        waits.append(result.ranks[0].bubble_s)
    assert waits[1] < waits[0]


@pytest.mark.torch_cuda
def test_what_every_stage_needs_is_split_off_once() -> None:
    split = shared_root.apply(llama())
    assert shared_root.apply(split) == split
    assert [segment.shared for segment in split.segments] == [True] + [False] * len(llama().segments)
    assert split.parameter_count() == llama().parameter_count()


@pytest.mark.torch_cuda
def test_earlier_stages_hold_more_activations() -> None:
    """1F1B: a stage holds as many micro-batches as there are stages from it to the end; GPipe holds all."""
    early, late = (peaks(job) for job in (made(pipeline=4), made(pipeline=4, schedule="gpipe")))
    assert early[0] > early[1] > early[2]
    assert all(gpipe >= other for gpipe, other in zip(late, early, strict=True))


def peaks(job: Composed) -> list[int]:
    """The most that live blocks hold on each stage."""
    found = []
    for trace in job.traces:
        kinds, values = trace.columns["kind"], trace.columns["value"]
        change = np.where(kinds == Kind.ALLOC, values, 0) - np.where(kinds == Kind.FREE, values, 0)
        found.append(int(np.cumsum(change).max()))
    return found


@pytest.mark.torch_cuda
def test_stages_of_a_user_s_choice() -> None:
    job = made(pipeline=2, stages=(3, 1))
    first, second = (flops(trace) for trace in job.traces)
    assert first > second - 3 * 2 * 256 * 256 * 1024 * 4
    with pytest.raises(InputError, match=r"^stages sum to 5 blocks, but the model has 4; correct the plan$"):
        made(pipeline=2, stages=(3, 2))


def test_a_composed_job_is_the_same_when_it_was_saved(tmp_path: Path) -> None:
    """That its host times are of a table goes with it."""
    job = compose(llama(4), Plan(sequence=512, pipeline=2, global_batch=16), CLUSTER)
    job_store.save(list(job.traces), tmp_path / "job", stands_for=job.stands_for, notes=job.notes)
    again = Job.load(tmp_path / "job")
    first, second = (
        evaluate(Job.of(traces, stands_for=job.stands_for), CLUSTER).result for traces in (job.traces, again.traces)
    )
    assert first == second
    assert first.notes[0].startswith("8 ranks: 2 composed; by the plan the others do the same")


@pytest.mark.torch_cuda
@pytest.mark.parametrize("style", ["fsdp2", "ddp", "zero1"])
def test_a_v_starts_and_ends_on_the_first_rank(style: str) -> None:
    """Messages pass between neighbours alone; at the turn nothing is sent."""
    job = made(pipeline=2, virtual=2, schedule="dualpipev", data_style=style)
    (whole,) = made(data_style=style).traces
    assert sum(map(flops, job.traces)) == flops(whole) * 2
    for trace in job.traces:
        check(trace)
        rows = trace.columns["signature"][trace.steps()[-1]]
        sent = [trace.signatures[one] for one in rows[rows >= 0].tolist()]
        assert sum(getattr(one, "kind", "") == "send" for one in sent) == 2 * 4  # of each micro-batch
    assert evaluate(job, CLUSTER).result.step_time_s


@pytest.mark.torch_cuda
@pytest.mark.parametrize("style", ["fsdp2", "ddp", "zero1"])
def test_dual_pipe_has_each_parameter_twice_and_the_work_of_once(style: str) -> None:
    """Opposite ranks have the same two stages, and reduce gradients among them and their replicas."""
    job = made(pipeline=2, schedule="dualpipe", data_style=style)
    (whole,) = made(data_style=style).traces
    single = made(pipeline=2, data_style=style)
    assert sum(map(flops, job.traces)) == flops(whole) * 2
    (data,) = {tuple(group.ranks) for trace in job.traces for group in trace.manifest.groups if group.name == "data"}
    assert data == tuple(range(8))
    held = sum(trace.manifest.model["parameters_local"] for trace in job.traces)
    once = sum(trace.manifest.model["parameters_local"] for trace in single.traces)
    assert held == once if style == "fsdp2" else held == 2 * once  # FSDP2 shards both copies over all
    for trace in job.traces:
        check(trace)
    assert evaluate(job, CLUSTER).result.step_time_s


@pytest.mark.torch_cuda
@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev"])
def test_passes_side_by_side_hide_each_others_exchange(schedule: str) -> None:
    """Work and memory requests are the same; the exchange of tokens runs beside the other pass."""

    def job(*, side_by_side: bool) -> Composed:
        plan = Plan(
            sequence=2048, global_batch=32, pipeline=2, virtual=2 if schedule == "dualpipev" else 1, expert=4,
            data_style="zero1", cuda_graphs=True, schedule=schedule, side_by_side=side_by_side,  # type: ignore[arg-type]
        )  # fmt: skip
        return compose(qwen_moe(), plan, CLUSTER)

    alone, beside = job(side_by_side=False), job(side_by_side=True)
    for trace, paired in zip(alone.traces, beside.traces):
        check(paired)
        assert entries(trace) == entries(paired)
    results = [evaluate(one, CLUSTER).result for one in (alone, beside)]
    hidden = [result.time.communication_s - result.time.exposed_communication_s for result in results]
    assert hidden[1] > 1.5 * hidden[0]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"side_by_side": True, "schedule": "1f1b", "global_batch": 16},
            "passes run side by side only in a pipeline with schedule dualp",
        ),
        ({"side_by_side": True, "pipeline": 1}, "passes run side by side only in a pipeline with schedule dualpipe o"),
        ({"pipeline": 3, "global_batch": 48}, "schedule dualpipe has an even number of ranks, each with one stage and"),
        ({"virtual": 2, "global_batch": 16}, "schedule dualpipe has an even number of ranks, each with one stage and"),
        ({"global_batch": 8}, "schedule dualpipe needs an even number of micro-batches, half from each end, and at"),
        ({"global_batch": 20}, "schedule dualpipe needs an even number of micro-batches, half from each end, and at"),
    ],
)
def test_dual_pipe_needs_two_halves_and_side_by_side_needs_dual_pipe(fields: dict[str, int], sentence: str) -> None:
    world = 12 if fields.get("pipeline") == 3 else 8
    with pytest.raises(InputError, match=f"^{sentence}"):
        check_plan(Plan(**{"sequence": 256, "pipeline": 2, "schedule": "dualpipe", **fields}), world, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"virtual": 1, "global_batch": 16}, "schedule dualpipev has two stages a rank, on the two sides of a V, not"),
        ({"virtual": 2, "global_batch": 8}, "schedule dualpipev needs a micro-batch for each of 2 x 2 = 4 stages, not"),
    ],
)
def test_a_v_needs_two_stages_a_rank_and_enough_micro_batches(fields: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        check_plan(Plan(sequence=256, pipeline=2, schedule="dualpipev", **fields), 8, 4)  # type: ignore[arg-type]


@pytest.mark.torch_cuda
def test_ends_are_units_of_their_own_where_a_plan_says_so() -> None:
    """The embedding is gathered forward and backward, norm and output layer once; without it one root has both."""
    gathered = []
    for fields in ({}, {"separate_ends": True, "keep_last": True}):
        (trace,) = made(**fields).traces
        check(trace)
        rows = trace.columns["signature"][trace.steps()[-1]]
        found = [trace.signatures[one] for one in rows[rows >= 0].tolist()]
        gathered.append([one.bytes for one in found if getattr(one, "kind", "") == "all_gather"])
    whole, ends = gathered
    micros, root = 2, whole[0]
    assert len(ends) == len(whole) + 2 * micros  # embedding twice and head once, in place of the root
    embedding = (sum(ends) - sum(whole)) // micros
    assert ends.count(embedding) == 2 * micros
    assert ends.count(root - embedding) == micros
    with pytest.raises(
        InputError, match=r"^separate_ends applies to data_style fsdp2 and hsdp without a pipeline, not"
    ):
        made(pipeline=2, separate_ends=True)


@pytest.mark.torch_cuda
def test_whole_blocks_are_recomputed_where_a_plan_says_so() -> None:
    """Backward needs all of a block but its last product's output."""
    less, more = (flops(made(recompute="full", recompute_whole=whole).traces[0]) for whole in (False, True))
    again = flops(made().traces[0])
    assert again < less < more
