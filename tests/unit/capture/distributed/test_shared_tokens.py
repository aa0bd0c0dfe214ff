"""Which rank's tokens decide the experts."""

from __future__ import annotations

import pytest

from presim.capture.distributed.shared_tokens import SharedTokens


def told(rank: int, *groups: tuple[str, list[int]], running: int = 8) -> int:
    said: list[int] = []
    shared = SharedTokens(rank, running, said.append)
    for name, ranks in groups:
        shared.add_group(name, ranks)
    return said[-1]


def test_all_ranks_draw_alike_if_some_do_not_run() -> None:
    """Captured ranks answer for the others with their own data."""
    assert told(5, ("mesh_tp", [4, 5]), running=0) == 0


def test_ranks_draw_by_themselves_where_values_differ_by_rank() -> None:
    """Even if some ranks do not run, or a group has no name; tensor parallel ranks still share their tokens."""
    said: list[int] = []
    shared = SharedTokens(5, 0, said.append, by_rank=True)
    shared.add_group("", [4, 5])
    assert said[-1] == 5
    shared.add_group("mesh_tp", [2, 5])
    assert said[-1] == 2


def test_a_rank_without_groups_has_its_own_tokens() -> None:
    assert told(3) == 3


@pytest.mark.parametrize("name", ["mesh_tp", "tp", "TENSOR_MODEL_PARALLEL_GROUP", "mesh_tensor"])
def test_tensor_parallel_ranks_share_the_tokens_of_their_first(name: str) -> None:
    assert told(5, ("mesh_dp", [1, 5]), (name, [4, 5])) == 4
    assert told(5, (name, [6, 7])) == 5


@pytest.mark.parametrize("name", ["mesh_dp", "mesh_ep", "EXPERT_TENSOR_PARALLEL_GROUP", "CONTEXT_PARALLEL_GROUP"])
def test_other_groups_do_not_share_tokens(name: str) -> None:
    assert told(5, (name, [4, 5])) == 5


@pytest.mark.parametrize("name", ["", "undefined", "mesh_default", "mesh_dim_0"])
def test_all_ranks_draw_alike_after_an_unnamed_group(name: str) -> None:
    """It may be tensor parallel, unless it has all ranks or one."""
    assert told(5, (name, [4, 5]), ("mesh_tp", [4, 5])) == 0
    assert told(5, (name, list(range(8))), (name, [5])) == 5
