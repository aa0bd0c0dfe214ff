"""Which ranks of a job were run and compared: the evidence that the others behave the same."""

from __future__ import annotations

import msgspec

from presim.trace import spans


class RankCoverage(msgspec.Struct, frozen=True):
    """What was looked at besides the captured ranks."""

    rule: str = ""  # how the ranks to run were chosen, as a clause for a reader; empty: not known (older jobs)
    compared: str = ""  # ranks that ran and did the same as the captured rank that stands for them (presim.trace.spans)
    steps: int = 1  # steps of each that were compared; 0: the script has none, and all of its work was
    failed: str = ""  # ranks that ran as a sample and failed where the captured ones did not (presim.trace.spans)
    undecided: str = ""  # ranks that did not run and lie between two kinds of ranks (presim.trace.spans)
    rank_reads: tuple[str, ...] = ()  # lines outside PyTorch that read the rank, as ``file.py:12 (RANK)``

    def compared_ranks(self) -> list[int]:
        """Rank by rank, ascending."""
        return spans.from_text(self.compared)
