"""What widens the interval of a step time."""

from __future__ import annotations

import pytest

from presim.analysis.provenance import SPREAD, Doubts, reaches_experts
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Routed, Splits
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective

ROUTED = Routed("deepep", 4096, 4096, 8, 64, 20)
SPLITS = Splits(0, (1, 3), (2, 2))


def trace(group: str, collective: Collective) -> Trace:
    groups = (Group("dp", (0, 1), 2), Group(group, (0, 1), 2))
    build = TraceBuilder(Manifest(world_size=2, rank=0, gpu="", gpus_per_node=2, script="", groups=groups))
    build.work(collective)
    return build.trace()


@pytest.mark.parametrize(
    ("group", "collective", "reaches"),
    [
        ("tp", Collective("dispatch", 1, "bfloat16", 1, routed=ROUTED), True),
        ("tp", Collective("all_to_all", 1, "bfloat16", 1, splits=SPLITS), True),
        ("EXPERT_MODEL_PARALLEL_GROUP", Collective("all_to_all", 1, "bfloat16", 1), True),
        ("mesh_ep", Collective("all_to_all", 1, "bfloat16", 1), True),
        ("CONTEXT_PARALLEL_GROUP", Collective("all_to_all", 1, "bfloat16", 1), False),  # heads for sequences
        ("keep", Collective("all_to_all", 1, "bfloat16", 1), False),
        ("mesh_ep", Collective("all_reduce", 1, "bfloat16", 1), False),  # of what all have
    ],
)
def test_tokens_reach_experts_by_a_library_in_uneven_parts_or_in_a_group_of_experts(
    group: str, collective: Collective, reaches: bool
) -> None:
    assert reaches_experts(trace(group, collective)) == reaches


def test_where_tokens_reach_experts_their_loads_are_in_the_interval_too() -> None:
    alone, dealt = (Doubts(1e9, 0.0, 0.0, 0.0, 0.0, experts).interval() for experts in (False, True))
    assert alone == pytest.approx((1e9 * (1 - SPREAD.clusters), 1e9 * (1 + SPREAD.clusters)))
    both = (SPREAD.clusters**2 + SPREAD.experts**2) ** 0.5
    assert dealt == pytest.approx((1e9 * (1 - both), 1e9 * (1 + both)))
