"""Ranks that run together exchange the data that scripts depend on: objects, flags, split sizes, messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.cli import api
from presim.engine.matching import match_collectives
from presim.errors import HangError
from presim.trace import job_store
from presim.trace.collate import Communicators
from presim.trace.representatives import Representatives
from support.captured import SCRIPTS

pytestmark = pytest.mark.torch_cuda


def test_ranks_that_disagree_are_reported_as_a_hang() -> None:
    """The error has the awaited rank, the group, and its last call."""
    with pytest.raises(HangError) as caught:
        api.run(str(SCRIPTS / "disagree.py"), gpu="h100-sxm", world_size=2, ranks="all")
    expected = "on 'default_pg' (ranks 0, 1) waits for rank 1, which makes 2 calls on it and not this one"
    assert expected in str(caught.value)
    assert str(caught.value).count(f"at {SCRIPTS / 'disagree.py'}:12: all_reduce") == 2, "the lines that call"


def test_nccl_calls_outside_pytorch_have_lines_too() -> None:
    """The script has its own NCCL binding."""
    with pytest.raises(HangError) as caught:
        api.run(str(SCRIPTS / "direct_nccl.py"), gpu="h100-sxm", world_size=2, ranks="all")
    assert "waits for rank 1, which makes 2 calls on it and not this one" in str(caught.value)
    assert str(caught.value).count(f"at {SCRIPTS / 'direct_nccl.py'}:24: all_reduce") == 2


@pytest.mark.long
def test_with_a_live_clock_ranks_that_disagree_are_reported_too() -> None:
    with pytest.raises(HangError, match="every rank waits for another") as caught:
        api.run(str(SCRIPTS / "disagree.py"), gpu="h100-sxm", world_size=2, ranks="all", live=True)
    assert f"they wait in rank 0 at {SCRIPTS / 'disagree.py'}:12: all_reduce of 4194304 bytes" in str(caught.value)


def test_the_filled_part_of_a_buffer_arrives() -> None:
    result = api.run(str(SCRIPTS / "partly_filled.py"), gpu="h100-sxm", world_size=2, ranks="all", steps=0)
    assert (result.exit, result.error) == ("ok", "")


def test_a_script_that_checks_all_it_receives_runs_to_its_end(tmp_path: Path) -> None:
    """Four processes; each call matches its counterparts when the traces are combined."""
    api.run(str(SCRIPTS / "exchange.py"), gpu="h100-sxm", world_size=4, ranks="all", save=tmp_path / "trace")
    traces = list(job_store.load(tmp_path / "trace").traces.values())
    assert [(trace.manifest.exit, trace.manifest.error) for trace in traces] == [("ok", "")] * 4
    matching = match_collectives(traces)
    # Four of the messages are a ring in one launch each; two calls of all ranks are replays.
    assert sorted(matching.needed.tolist()) == [*[2] * 7, 3, *[4] * 11]
    communicators = Communicators(traces, Representatives(range(4)))
    first = [place.ranks.tolist() for place in communicators.memberships(0) if place is not None]
    assert first == [[0, 1, 2, 3], [0, 3], [0, 2], [0, 1, 3], [0, 3]]
