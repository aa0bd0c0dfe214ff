"""What a reader of the result is told."""

from __future__ import annotations

from presim.analysis.caveats import _policies
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Manifest, ReadBack


def told(*reads: ReadBack) -> list[str]:
    manifest = Manifest(world_size=1, rank=0, gpu="", gpus_per_node=1, script="", read_backs=reads)
    return _policies(TraceBuilder(manifest).trace())


def test_a_few_places_are_named_and_the_others_counted() -> None:
    """The same file name in two folders is two places; what was computed is no policy's answer."""
    zeros = [ReadBack(f"/a/{name}.py:{line}", "item", "zero", 2) for name in "bc" for line in (1, 2)]
    (note,) = told(*zeros, ReadBack("/d/c.py:1", "item", "zero", 1), ReadBack("/a/e.py:1", "item", "computed", 5))
    assert note == (
        "Policies answered for values that the script read: zero 9x (b.py:1, b.py:2 and 3 more); --values chooses, "
        "read_backs in the JSON result has all places."
    )


def test_nothing_is_said_of_more_where_all_are_named() -> None:
    (note,) = told(ReadBack("a.py:1", "item", "loss", 2), ReadBack("a.py:2", "nonzero", "loss", 1))
    assert note == "Policies answered for values that the script read: loss 3x (a.py:1, a.py:2); --values chooses."
    assert told(ReadBack("a.py:1", "item", "computed", 2)) == []
