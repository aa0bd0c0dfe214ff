"""Work done per second by a whole job."""

from __future__ import annotations

import msgspec
import pytest

from presim.analysis.time.throughput import with_uneven_ranks
from presim.result import Throughput
from presim.trace.schema import Manifest, StepFacts

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
