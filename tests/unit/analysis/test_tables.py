"""Time by operator, module and collective; what limits; how sure."""

from __future__ import annotations

import re

import pytest

from presim.analysis.summarise import summarise
from presim.analysis.time.scopes import merge_numbers
from presim.analysis.time.throughput import data_parallel_ranks
from presim.result import Result
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Attention, Collective, Copy, Elementwise, Gemm, Kernel
from support import fakes, workloads


def result_of(trace: Trace) -> Result:
    priced = fakes.priced(trace)
    return summarise(priced, fakes.simulate(priced), fakes.DEVICE)


@pytest.fixture(scope="module")
def llama() -> Result:
    return result_of(workloads.llama_8b(steps=2, layers=4))


def test_the_parts_of_the_time_are_the_step(llama: Result) -> None:
    """In seconds, as in nanoseconds."""
    time = llama.time
    parts = (time.compute_s, time.exposed_communication_s, time.exposed_copy_s, time.host_bound_s, time.idle_s)
    assert sum(parts) == pytest.approx(llama.step_time_s)
    assert sum(part.seconds for part in time.by_phase) == pytest.approx(time.compute_s + time.exposed_copy_s)


def test_operators_share_out_the_steps_work(llama: Result) -> None:
    """Critical parts of operators, families and top modules each add up to the time spent on work."""
    on_work = llama.time.compute_s + llama.time.exposed_communication_s + llama.time.exposed_copy_s
    assert sum(row.critical_s for row in llama.operators) == pytest.approx(on_work)
    assert sum(row.critical_s for row in llama.families) == pytest.approx(on_work)
    assert sum(row.critical_s for row in llama.modules if not row.depth) == pytest.approx(on_work)


def test_exposed_communication_is_shared_out_to_groups_and_kinds(llama: Result) -> None:
    """The rows of the table are together what the step waits for."""
    exposed = sum(row.exposed_s for row in llama.collectives)
    assert exposed == pytest.approx(llama.time.exposed_communication_s)
    assert {(row.group, row.kind, row.count) for row in llama.collectives} == {
        ("fsdp", "all_gather", 8),
        ("fsdp", "reduce_scatter", 4),
    }


def test_layers_are_merged_into_one_line(llama: Result) -> None:
    """Four layers, one path, with its parents above and its parts below."""
    paths = {row.path: row for row in llama.modules}
    assert paths["model.layers.*"].instances == 4
    assert paths["model.layers.*.mlp"].recompute_s > 0
    order = [row.path for row in llama.modules]
    assert order.index("model") < order.index("model.layers.*") < order.index("model.layers.*.mlp")


def test_the_interval_holds_the_step_time(llama: Result) -> None:
    """The step time lies within its own 80 % interval."""
    assert llama.step_time_low_s is not None
    assert llama.step_time_high_s is not None
    assert llama.step_time_s is not None
    assert 0 < llama.step_time_low_s < llama.step_time_s < llama.step_time_high_s


def test_a_launch_bound_script_gets_a_limit() -> None:
    """The host issues far slower than the device works: it comes first among the limits."""
    result = result_of(workloads.launch_bound())
    assert result.limits[0].name == "host"
    assert result.limits[0].statement == ("The device waits 77.8% of the step (2.80 ms) for the host to issue kernels.")


def test_a_failed_script_has_a_result_without_a_step_time() -> None:
    """Memory is known, the time of a step that never ended is not."""
    result = result_of(workloads.out_of_memory())
    assert result.exit == "out_of_memory"
    assert result.step_time_s is None
    assert result.throughput.tokens_per_s is None
    assert result.notes == ["No step was completed: the figures cover the run up to the failure."]


def test_an_empty_trace_has_a_result() -> None:
    """A script that died before it touched the device still gets one."""
    result = result_of(TraceBuilder().trace())
    assert result.step_time_s is None
    assert result.memory.fits is None
    assert (result.operators, result.limits, result.collectives) == ([], [], [])


def test_unknown_kernels_are_confessed() -> None:
    """Their share of the step and the longest of them stand under what is not modelled."""
    build = TraceBuilder()
    build.work(Kernel("mystery", (1, 1, 1), (32, 1, 1)), phase=Phase.FORWARD)
    build.work(Elementwise(8, 8, 8, "float32"), phase=Phase.FORWARD)
    build.step()
    result = result_of(build.trace())
    (sentence,) = result.not_modelled
    assert re.fullmatch(
        r"The time of kernels known only by name is a guess: \S+ [mu]?s, 50\.0% of the step, most of it mystery\. "
        r"The true time may be ten times as long\.",
        sentence.replace("µs", "us").replace("ns", "us"),
    ), sentence


@pytest.mark.parametrize(
    ("megabytes", "note"),
    [((8, 8, 8), False), ((8, 400, 400), False), ((400, 8, 8), False), ((8, 8, 400, 8), True)],
)
def test_a_step_longer_than_another_is_noted(megabytes: tuple[int, ...], note: bool) -> None:
    """Longer ones hold a copy to the host as a checkpoint does; that the first step differs is usual."""
    build = TraceBuilder()
    for size in megabytes:
        build.work(Elementwise(10**9, 10**9, 10**9, "float32"), phase=Phase.FORWARD)
        build.work(Copy("d2h", size * 1_000_000))
        build.step()
    told = [sentence for sentence in result_of(build.trace()).notes if sentence.startswith("Steps differ")]
    expected = (
        "Steps differ: mean 3.58 ms, 967 us to 8.81 ms over 3 steps that repeat. The figures describe step 4, "
        "which takes 967 us. Unusual by a factor of 1.2 or more: step 3 8.81 ms (7.84 ms more work outside modules)."
    )
    assert told == ([expected] if note else [])


GRAPHS = ", in CUDA graphs as long as the limit at graph capture"


@pytest.mark.parametrize(("replayed", "more"), [(False, ""), (True, GRAPHS)])
def test_lengths_of_cached_sequences_are_the_longest_s(replayed: bool, more: str) -> None:
    build = TraceBuilder()
    decode = Attention("forward", 8, 8, 8, 1, 4096, 64, 64, False, "bfloat16", "flash")
    build.work(decode, operator="_vllm_fa3_C::fwd", replayed=replayed)
    build.step()
    assert result_of(build.trace()).not_modelled == [
        f"Attention over the KV cache assumes that every sequence is as long as the longest of its batch{more}."
    ]


def test_an_unknown_peak_is_noted() -> None:
    """There is no MFU in a type that the GPU's sheet does not give."""
    build = TraceBuilder()
    build.work(Gemm(64, 64, 64, 1, "float64"))
    build.step()
    result = result_of(build.trace())
    assert result.mfu is None
    assert "No MFU: the GPU's dense float64 peak is not known." in result.notes


@pytest.mark.parametrize(
    ("groups", "ranks"),
    [
        ((), 64),
        ((Group("mesh_tp", (), 8), Group("mesh_dp", (), 8)), 8),
        ((Group("tp", (), 4), Group("pp", (), 4)), 4),
        ((Group("mesh_tp", (), 8), Group("mesh_tp", (), 8)), 8),
        ((Group("default_pg", (), 64),), 64),
        ((Group("mesh_dp_shard_cp", (), 64), Group("mesh_cp", (), 4)), 16),
        ((Group("mesh_tp", (), 64),), 1),
        ((Group("TENSOR_MODEL_PARALLEL_GROUP", (0, 1), 2), Group("EXPERT_TENSOR_PARALLEL_GROUP", (0, 1, 2, 3), 4)), 32),
        ((Group("EXPERT_MODEL_PARALLEL_GROUP", tuple(range(8)), 8),), 64),
        (  # a pair for each neighbour in the pipeline; all of them are in the group of the model
            (
                *(Group("PIPELINE_MODEL_PARALLEL_GROUP", (0, stage), 2) for stage in (8, 56)),
                Group("TENSOR_MODEL_PARALLEL_GROUP", (0, 1), 2),
                Group("MODEL_PARALLEL_GROUP", tuple(8 * stage + rank for stage in range(8) for rank in (0, 1)), 16),
            ),
            4,
        ),
        (  # the tensor-parallel ranks are in both
            (
                Group("TENSOR_AND_CONTEXT_PARALLEL_GROUP", (0, 1, 2, 3), 4),
                Group("MODEL_PARALLEL_GROUP", (0, 1, 32, 33), 4),
            ),
            8,
        ),
    ],
)
def test_ranks_that_share_a_model_read_the_same_data(groups: tuple[Group, ...], ranks: int) -> None:
    """Judged by the names that meshes give their groups."""
    manifest = Manifest(world_size=64, rank=0, gpu="", gpus_per_node=8, script="", groups=groups)
    assert data_parallel_ranks(TraceBuilder(manifest).trace()) == ranks


@pytest.mark.parametrize(("reduced_bytes", "ranks"), [(1 << 30, 4), (4, 1)])
def test_stages_of_a_pipeline_without_a_name_read_the_same_data(reduced_bytes: int, ranks: int) -> None:
    """64 ranks that send each other messages: those that reduce gradients together differ, a norm says nothing."""
    groups = (Group("default_pg", (), 64), Group("7", (), 4))
    build = TraceBuilder(Manifest(world_size=64, rank=0, gpu="", gpus_per_node=8, script="", groups=groups))
    build.work(Collective("send", 1 << 20, "bfloat16", 0, peer=1))
    build.work(Collective("all_reduce", reduced_bytes, "float32", 1))
    assert data_parallel_ranks(build.trace()) == ranks


@pytest.mark.parametrize(
    ("path", "merged"),
    [
        ("model.layers.17.mlp", "model.layers.*.mlp"),
        ("0", "*"),
        ("blocks.1.2.conv1", "blocks.*.*.conv1"),
        ("", "(outside modules)"),
    ],
)
def test_numbers_between_dots_are_merged(path: str, merged: str) -> None:
    """Numbers that are part of a name stay."""
    assert merge_numbers(path) == merged
