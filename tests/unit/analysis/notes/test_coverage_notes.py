"""What a report says of the ranks that it rests on."""

from __future__ import annotations

from presim.analysis.notes.coverage_notes import coverage_figures, coverage_sentences
from presim.trace.coverage import RankCoverage
from presim.trace.representatives import Representatives


def test_ranks_are_captured_compared_assumed_or_unknown() -> None:
    representatives = Representatives([0, 4], {0: [1, 2, 3], 4: [5, 6]})
    found = RankCoverage("some ran", compared="2,6", steps=3, undecided="5", failed="3", rank_reads=("a.py:1 (RANK)",))
    figures = coverage_figures(8, representatives, found)
    assert (figures.captured, figures.compared, figures.assumed, figures.unknown) == (2, 2, 3, 1)
    assert (figures.undecided, figures.failed, figures.steps) == (1, 1, 3)
    assert coverage_sentences(8, figures) == [
        "8 ranks: 2 captured, 2 compared over 3 steps and the same, 3 not run and assumed to be the same, 1 not run "
        "and not represented by any captured rank (some ran).",
        "1 of the assumed ranks lie between ranks that differ and may match either.",
        "An assumed rank that has more work makes the step longer than predicted, one with more memory may not fit, "
        "and one that calls other collectives makes the job hang: --check N compares more ranks. The program reads "
        "its rank at a.py:1 (RANK).",
    ]


def test_one_process_with_several_gpus_is_a_single_rank() -> None:
    """It stands for the GPUs that a rank each would have used."""
    figures = coverage_figures(1, Representatives([0], {0: [1]}), RankCoverage("one process uses all GPUs"))
    assert (figures.captured, figures.assumed, figures.unknown) == (1, 0, 0)


def test_collectives_that_depend_on_policies_come_first_and_limit_what_is_the_same() -> None:
    found = RankCoverage("every rank ran", "1:4:1", steps=3, dependence="Collectives depend on values.")
    figures = coverage_figures(4, Representatives([0], {0: [1, 2, 3]}), found)
    assert coverage_sentences(4, figures) == [
        "Collectives depend on values.",
        "4 ranks: 1 captured, 3 compared over 3 steps and the same for equal values of policies (every rank ran).",
    ]
    captured = coverage_figures(4, Representatives([0, 1, 2, 3]), found)
    assert coverage_sentences(4, captured) == ["Collectives depend on values."]


def test_reads_that_only_choose_a_device_are_no_reason_for_doubt() -> None:
    reads = ("a.py:1 (LOCAL_RANK, to choose a device or print)", "a.py:2 (get_rank)")
    figures = coverage_figures(4, Representatives([0], {0: [1, 2, 3]}), RankCoverage(rank_reads=reads))
    assert coverage_sentences(4, figures)[-1].endswith("The program reads its rank at a.py:2 (get_rank).")


def test_nothing_is_assumed_if_every_rank_ran() -> None:
    figures = coverage_figures(
        4, Representatives([0], {0: [1, 2, 3]}), RankCoverage("every rank ran", "1:4:1", steps=1)
    )
    assert coverage_sentences(4, figures) == [
        "4 ranks: 1 captured, 3 compared over 1 step and the same (every rank ran)."
    ]


def test_differences_after_the_last_captured_step_are_not_compared() -> None:
    """The script of a user may have a barrier after its training loop."""
    found = RankCoverage("every rank ran", "1:4:1", steps=3)
    figures = coverage_figures(4, Representatives([0], {0: [1, 2, 3]}), found)
    assert coverage_sentences(4, figures, stopped=True) == [
        "4 ranks: 1 captured, 3 compared over 3 steps and the same (every rank ran).",
        "The script was stopped after step 3, so later differences between ranks, such as an extra barrier, were not "
        "compared. --steps 0 runs the script to its end.",
    ]


def test_a_single_rank_has_no_coverage_note() -> None:
    assert coverage_sentences(1, coverage_figures(1, Representatives([0]), RankCoverage())) == []


def test_ranks_that_were_not_run_are_assumed() -> None:
    figures = coverage_figures(4, Representatives([0], {0: [1, 2, 3]}), RankCoverage())
    assert (figures.compared, figures.assumed) == (0, 3)
