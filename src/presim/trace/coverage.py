"""Which ranks of a job were run and compared: the evidence that the others behave the same."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from presim.system.files.field_bounds import Count
from presim.trace import spans

CONFINED = ", to choose a device or print"  # in a place that reads the rank: nothing else depends on what it reads

ZERO_ONLY = ", only to tell rank 0 from others"  # likewise


class RankCoverage(msgspec.Struct, frozen=True):
    """The ranks that were compared with captured ranks, and how."""

    rule: str = ""  # how the ranks to run were chosen, as a clause for a reader; empty: not known (older jobs)
    compared: str = ""  # ranks that ran and did the same as the captured rank that stands for them (presim.trace.spans)
    steps: Count = 1  # steps of each that were compared; 0: the script has none, and all of its work was
    failed: str = ""  # ranks that ran as a sample and failed where the captured ones did not (presim.trace.spans)
    undecided: str = ""  # ranks that did not run and lie between two kinds of ranks (presim.trace.spans)
    # Lines outside PyTorch that read the rank, as ``file.py:12 (RANK)``; `CONFINED` is within the brackets if only that
    # depends on it, or `ZERO_ONLY`.
    rank_reads: tuple[str, ...] = ()
    dependence: str = ""  # a sentence if collectives depend on policy values, with which all ranks were compared alike

    def compared_ranks(self) -> list[int]:
        """Rank by rank, ascending."""
        return spans.from_text(self.compared)


def unconfined(rank_reads: Iterable[str]) -> list[str]:
    """The reads of the rank on which device work may depend."""
    return [read for read in rank_reads if not read.endswith(f"{CONFINED})")]


def tells_only_rank_0(rank_reads: Iterable[str]) -> bool:
    """Whether the program reads its rank for device work, and nothing depends on it but whether it is 0."""
    reads = unconfined(rank_reads)
    return bool(reads) and all(read.endswith(f"{ZERO_ONLY})") for read in reads)
