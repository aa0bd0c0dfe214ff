"""Find which ranks have the same tokens, so that an expert routing policy draws the same experts for them.

Tensor parallel ranks share tokens. Their groups are recognised by the names that frameworks give them; an unnamed group
may be one of these, so all ranks then draw alike. They also draw alike if some ranks do not run: a captured rank
answers for those with its own data, and the numbers of tokens sent have to agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_UNNAMED = re.compile(r"|undefined|mesh_default|mesh_(dim_)?\d*")
_TENSOR = re.compile(r"(mesh_)?(tp|tensor(_parallel)?|(tensor_)?model_parallel_group)", re.IGNORECASE)


class SharedTokens:
    """Observes the groups of one rank as they are created; ``report`` gets the rank whose tokens decide the experts.

    ``running``: the world size if all ranks run; else 0, and all ranks draw alike. ``by_rank``: ranks draw by
    themselves even so, unless the name of their group says that they share tokens.
    """

    def __init__(self, rank: int, running: int, report: Callable[[int], object], *, by_rank: bool = False) -> None:
        self.rank, self.running, self.report = rank, running, report
        self._first = rank  # lowest rank that shares tokens with this one
        self._by_rank = by_rank
        self._is_known = by_rank or running > 1
        self._report()

    def add_group(self, name: str, ranks: Sequence[int]) -> None:
        """A group of these global ranks was created. ``name``: its description; empty or PyTorch's default if none."""
        if self.rank not in ranks:
            return
        if _TENSOR.fullmatch(name):
            self._first = min(self._first, *ranks)
        elif not self._by_rank and _UNNAMED.fullmatch(name) and 1 < len(ranks) < self.running:
            self._is_known = False
        self._report()

    def _report(self) -> None:
        self.report(self._first if self._is_known else 0)
