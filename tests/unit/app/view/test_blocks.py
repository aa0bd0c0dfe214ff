"""Memory by category and block in the browser is that of the trace."""

from __future__ import annotations

import pytest

from presim.analysis.memory.blocks import allocated_bytes
from presim.app.view import blocks
from presim.app.view.panes import Shown
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.job import Job
from support import workloads


@pytest.fixture(scope="module")
def shown() -> Shown:
    trace = workloads.llama_8b(steps=2, layers=3)
    return Shown("a job", evaluate(Job.of(trace), choose_cluster(gpu="h100-sxm", world_size=128)))


def test_categories_add_up_to_what_is_allocated(shown: Shown) -> None:
    answer = blocks.over_time(shown, 0)
    allocated = allocated_bytes(shown.evaluation.priced.trace)
    totals = [sum(sizes) for sizes in zip(*answer["categories"].values())]
    assert totals == allocated[answer["entries"]].tolist()
    assert allocated[answer["peak"]] == max(totals) == shown.evaluation.result.memory.peak_allocated_bytes
    assert answer["time_s"] == sorted(answer["time_s"])


def test_live_blocks_hold_what_is_allocated(shown: Shown) -> None:
    """The largest come first; each says its category, module and phase."""
    trace = shown.evaluation.priced.trace
    entry = blocks.over_time(shown, 0)["peak"]
    answer = blocks.live(shown, 0, entry)
    assert answer["bytes"] == allocated_bytes(trace)[entry]
    sizes = [block["bytes"] for block in answer["blocks"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) <= answer["count"]
    assert {block["category"] for block in answer["blocks"]} & set(blocks.over_time(shown, 0)["categories"])


def test_an_entry_or_rank_that_is_not_there_is_refused(shown: Shown) -> None:
    with pytest.raises(InputError, match="and no entry 999999999"):
        blocks.live(shown, 0, 999_999_999)
    with pytest.raises(InputError, match="rank 5 was not simulated"):
        blocks.over_time(shown, 5)
