"""A search compares placements of the same GPUs, and its front is of steps and staleness."""

from __future__ import annotations

from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.placement_search import candidates, marked_fronts
from presim.post_training.rl_answer import Alternative
from presim.post_training.rl_request import RlRequest


def test_pools_are_whole_nodes_of_a_large_cluster_and_gpus_of_a_node() -> None:
    request = RlRequest(model="qwen3-8b", partial=False)
    for nodes, sizes in ((4, {8, 16, 24}), (1, {2, 4, 6})):
        placements = list(candidates(request, choose_cluster(gpu="h100-sxm", nodes=nodes)))
        assert placements[0].placement == "colocated"
        assert {placement.rollout_gpus for placement in placements[1:]} == sizes
        assert {placement.staleness for placement in placements[1:]} == {0.0, 1.0, 2.0, 4.0}


def test_the_front_has_no_placement_that_a_fresher_one_beats() -> None:
    steps = [("a", 20.0, 0), ("b", 30.0, 0), ("c", 18.0, 1), ("d", 19.0, 2), ("e", 12.0, 4)]
    alternatives = [
        Alternative(placement=name, step_time_s=step_s, largest_staleness=staleness)
        for name, step_s, staleness in steps
    ]
    refused = Alternative(placement="f", refusal="does not fit")
    marked = marked_fronts([*alternatives, refused])
    assert [alternative.placement for alternative in marked if alternative.is_on_front] == ["a", "c", "e"]
