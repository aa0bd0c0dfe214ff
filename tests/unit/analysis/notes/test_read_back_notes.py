"""The values that ranks read: listed once, with everyone who did, and told in a sentence."""

from __future__ import annotations

from presim import result
from presim.analysis.notes.read_back_notes import policies_note, policies_used, ranges, read_backs, selection_note
from presim.trace.schema import Manifest, ReadBack


def manifest(rank: int, *reads: ReadBack) -> Manifest:
    return Manifest(world_size=8, rank=rank, gpu="", gpus_per_node=8, script="", read_backs=reads)


def told(*reads: ReadBack) -> list[str]:
    return policies_note(read_backs([manifest(0, *reads)]), "0")


def test_ranks_that_read_the_same_are_one_entry_and_the_others_are_named() -> None:
    """A pipeline of four: all look for infinities, the last reads its loss, one of them more often than others."""
    finite, loss = ReadBack("a.py:1", "item", "finite", 2), ReadBack("a.py:2", "item", "loss", 4)
    job = [manifest(rank, finite) for rank in (0, 1, 2)] + [manifest(3, ReadBack("a.py:1", "item", "finite", 3), loss)]
    found = read_backs(job)
    assert found == [
        result.ReadBack("a.py:2", "item", "loss", 4, "3"),
        result.ReadBack("a.py:1", "item", "finite", 3, "0-3"),
    ]
    (note,) = policies_note(found, ranges(range(4)))
    assert note == (
        "Policies supplied values that the script read: loss 4x (a.py:2; rank 3), finite 3x (a.py:1); "
        "--values changes them."
    )


def test_a_few_places_are_named_and_the_others_counted() -> None:
    """The same file name in two folders is two places; what was computed is no policy's answer."""
    zeros = [ReadBack(f"/a/{name}.py:{line}", "item", "zero", 2) for name in "bc" for line in (1, 2)]
    (note,) = told(*zeros, ReadBack("/d/c.py:1", "item", "zero", 1), ReadBack("/a/e.py:1", "item", "computed", 5))
    assert note == (
        "Policies supplied values that the script read: zero 9x (b.py:1, b.py:2 and 3 more); "
        "--values changes them, "
        "read_backs in the JSON result has all places."
    )


def test_there_is_no_count_of_others_if_all_are_named() -> None:
    (note,) = told(ReadBack("a.py:1", "item", "loss", 2), ReadBack("a.py:2", "nonzero", "loss", 1))
    assert note == ("Policies supplied values that the script read: loss 3x (a.py:1, a.py:2); --values changes them.")
    assert told(ReadBack("a.py:1", "item", "computed", 2)) == []


def test_policies_that_were_used_have_their_setting_and_the_lines_that_read_them() -> None:
    """Settings that nobody read are not listed; what was computed is no policy's."""
    reads = read_backs(
        [
            manifest(
                0,
                ReadBack("a.py:3", "item", "loss", 2),
                ReadBack("a.py:9", "item", "loss", 5),
                ReadBack("a.py:4", "item", "sampling", 1),
                ReadBack("a.py:5", "item", "computed", 9),
                ReadBack("a.py:6", "item", "finite", 1),
            )
        ]
    )
    used = policies_used(reads, {"loss": "3,2", "token": "7", "routing": "balanced"})
    assert used == [
        result.PolicyUse("loss", "3,2", 7, ["a.py:9", "a.py:3"]),
        result.PolicyUse("token", "7", 1, ["a.py:4"]),
        result.PolicyUse("finite", "", 1, ["a.py:6"]),
    ]


def test_of_several_settings_of_sampling_those_that_are_set_were_used() -> None:
    reads = read_backs([manifest(0, ReadBack("a.py:3", "item", "sampling", 2))])
    settings = {"eos": "7", "eos_after": "uniform:3:20:5", "loss": "2.0"}
    assert policies_used(reads, settings) == [
        result.PolicyUse("eos", "7", 2, ["a.py:3"]),
        result.PolicyUse("eos_after", "uniform:3:20:5", 2, ["a.py:3"]),
    ]


def test_masks_that_select_nothing_are_named_by_line() -> None:
    """Other values that a policy answers with zero select nothing."""
    reads = [ReadBack("/a/b.py:1", "nonzero", "zero", 2), ReadBack("/a/b.py:2", "item", "zero", 1)]
    assert selection_note(read_backs([manifest(0, *reads)]), "0") == [
        "Masks whose values are not computed select nothing (b.py:1): work on what they select on a GPU is missing."
    ]
    assert selection_note(read_backs([manifest(0, reads[1])]), "0") == []
