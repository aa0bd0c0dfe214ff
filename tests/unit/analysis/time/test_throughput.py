"""Work done per second by a whole job."""

from __future__ import annotations

import msgspec
import pytest

from presim.analysis.time.throughput import data_parallel_ranks, throughput, with_uneven_ranks
from presim.result import Throughput
from presim.trace.builder import TraceBuilder
from presim.trace.schema import GpuUse, Group, Manifest, StepFacts, Trace
from presim.trace.signatures import Attention

OWN = Throughput(tokens_per_s=None, samples_per_s=800.0, steps_per_s=1.0, data_parallel_ranks=8, sample="images")


def manifest(*inputs: tuple[int, int]) -> Manifest:
    return Manifest(world_size=8, rank=0, gpu="", gpus_per_node=8, script="", step=StepFacts(inputs=inputs))


def test_ranks_that_read_other_amounts_count_with_theirs() -> None:
    manifests = {0: manifest((0, 1), (0, 100)), 1: manifest((0, 1), (0, 20))}
    job = with_uneven_ranks(OWN, manifests, {0: 2, 1: 6}, 0, 1)
    assert job.samples_per_s == pytest.approx(2 * 100 + 6 * 20)
    assert job.sample == "images, as the mean of all ranks"


@pytest.mark.parametrize("other", [manifest((0, 1), (0, 100)), manifest((0, 1)), manifest()])
def test_nothing_changes_where_ranks_read_alike_or_it_is_not_known(other: Manifest) -> None:
    assert with_uneven_ranks(OWN, {0: manifest((0, 1), (0, 100)), 1: other}, {0: 4, 1: 4}, 0, 1) == OWN


def test_ranks_that_share_data_are_not_counted_by_what_each_reads() -> None:

    shared = msgspec.structs.replace(OWN, data_parallel_ranks=4)
    assert with_uneven_ranks(shared, {0: manifest((0, 4)), 1: manifest((0, 2))}, {0: 4, 1: 4}, 0, 0) == shared


COPIES = Manifest(world_size=8, rank=1, gpu="", gpus_per_node=4, script="")
CONTEXT = Group("mesh_cp", (0, 1, 2, 3), 4)


@pytest.mark.parametrize(
    ("uses", "ranks"),
    [
        ((), 8),  # each on its own GPU
        ((GpuUse(0, 10, 40, 4),), 2),  # all four of a node on the first one
        ((GpuUse(1, 10, 10, 1), GpuUse(0, 10, 10, 1)), 4),  # each uses two; the others of the node did not run
    ],
)
def test_copies_of_a_program_that_share_a_gpu_count_once(uses: tuple[GpuUse, ...], ranks: int) -> None:
    """A program for one process with all GPUs of its node, such as DataParallel, was started once for each GPU."""
    manifest = msgspec.structs.replace(COPIES, gpus=uses)
    assert data_parallel_ranks(TraceBuilder(manifest).trace()) == ranks
    communicates = msgspec.structs.replace(manifest, groups=(Group("default_pg", (), 8),))
    assert data_parallel_ranks(TraceBuilder(communicates).trace()) == 8


def read_sequences(groups: tuple[Group, ...], query_length: int | None) -> Trace:
    """A rank of eight whose model takes 2 sequences of 1,024 tokens in a step, with queries of some length."""
    manifest = msgspec.structs.replace(COPIES, groups=groups, step=StepFacts(inputs=((2048, 2),)))
    build = TraceBuilder(manifest)
    if query_length:
        build.work(Attention("forward", 2, 8, 8, query_length, 4096, 64, 64, True, "bfloat16", "flash"))
    return build.trace()


@pytest.mark.parametrize(
    ("groups", "query_length", "tokens", "samples"),
    [
        ((CONTEXT,), 1024, 16384, 4),  # each of four ranks has a quarter of two sequences of 4,096
        ((CONTEXT,), None, 16384, 4),
        ((CONTEXT,), 256, 4096, 4),  # the model itself splits sequences of 1,024
        ((Group("TENSOR_AND_CONTEXT_PARALLEL_GROUP", (0, 1, 2, 3), 4),), 1024, 4096, 4),
        ((Group("mesh_dp_shard_cp", (), 8), CONTEXT), 1024, 16384, 4),
        ((Group("default_pg", (), 8),), 1024, 16384, 16),
    ],
)
def test_tokens_of_all_parts_of_a_sequence_count(
    groups: tuple[Group, ...], query_length: int | None, tokens: int, samples: int
) -> None:
    rates = throughput(read_sequences(groups, query_length), 1.0, 0)
    assert (rates.tokens_per_s, rates.samples_per_s) == (tokens, samples)
