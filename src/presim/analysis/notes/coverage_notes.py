"""How many ranks of a job are captured, compared, or assumed to behave the same."""

from __future__ import annotations

from presim.result import Coverage
from presim.trace import spans
from presim.trace.coverage import RankCoverage, unconfined
from presim.trace.representatives import Representatives


def coverage_figures(world_size: int, representatives: Representatives, rank_coverage: RankCoverage) -> Coverage:
    """The counts of a job of ``world_size`` ranks."""
    captured = len(representatives.captured)
    represented = min(representatives.represented, world_size)  # one process with several GPUs is a single rank
    compared = len(rank_coverage.compared_ranks()) if represented > captured else 0
    return Coverage(
        captured=captured,
        compared=compared,
        assumed=represented - captured - compared,
        unknown=world_size - represented,
        undecided=len(spans.from_text(rank_coverage.undecided)),
        failed=len(spans.from_text(rank_coverage.failed)),
        steps=rank_coverage.steps,
        rule=rank_coverage.rule,
        rank_reads=list(rank_coverage.rank_reads),
        dependence=rank_coverage.dependence,
    )


def coverage_sentences(
    world_size: int, coverage: Coverage, *, stopped: bool = False, composed: bool = False
) -> list[str]:
    """The coverage in sentences; none for a single rank. ``stopped``: the script was stopped after ``--steps``.

    Ranks of a ``composed`` job do the same by its plan, so nothing is assumed.
    """
    first = [coverage.dependence] if coverage.dependence else []
    if world_size == 1 or coverage.captured == world_size:
        return first
    if composed and not coverage.unknown:
        return [f"{world_size} ranks: {coverage.captured} composed; by the plan the others do the same as one of them."]
    parts = [f"{coverage.captured} captured"]
    if coverage.compared:
        over = "their whole run" if not coverage.steps else f"{coverage.steps} step{'s' if coverage.steps > 1 else ''}"
        condition = " for equal values of policies" if coverage.dependence else ""
        parts.append(f"{coverage.compared} compared over {over} and the same{condition}")
    if coverage.assumed:
        parts.append(f"{coverage.assumed} not run and assumed to be the same")
    if coverage.unknown:
        parts.append(f"{coverage.unknown} not run and not represented by any captured rank")
    rule = f" ({coverage.rule})" if coverage.rule else ""
    sentences = [*first, f"{world_size} ranks: {', '.join(parts)}{rule}."]
    if coverage.undecided:
        sentences.append(
            f"{coverage.undecided} of the assumed ranks lie between ranks that differ and may match either."
        )
    if coverage.assumed:
        sentences.append(_consequences_if_different(coverage))
    if coverage.compared and stopped:
        sentences.append(
            f"The script was stopped after step {coverage.steps}, so later differences between ranks, such as an extra "
            "barrier, were not compared. --steps 0 runs the script to its end."
        )
    return sentences


def stop_sentences(coverage: Coverage, steps: int) -> list[str]:
    """That a script was stopped after so many steps; none if `coverage_sentences` says it of compared ranks."""
    if coverage.compared:
        return []
    return [
        f"The script was stopped after step {steps}: what it does later was not seen. --steps 0 runs it to its end."
    ]


def _consequences_if_different(coverage: Coverage) -> str:
    """The consequences if an assumed rank does something else."""
    reads = unconfined(coverage.rank_reads)
    why = f" The program reads its rank at {reads[0]}{' and elsewhere' if len(reads) > 1 else ''}." if reads else ""
    return (
        "An assumed rank that has more work makes the step longer than predicted, one with more memory may not fit, "
        f"and one that calls other collectives makes the job hang: --check N compares more ranks.{why}"
    )
