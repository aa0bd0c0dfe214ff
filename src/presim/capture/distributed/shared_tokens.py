"""Which ranks have the same tokens, so that a policy draws the same experts for them.

Tensor parallel ranks do. Their groups are known by the names that frameworks give to groups; where a group has no such
name, it may be one of these. Nor do ranks draw apart where some do not run: one that runs answers for those with what
it holds itself, and how many tokens each sends has to agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_UNNAMED = re.compile(r"|undefined|mesh_default|mesh_(dim_)?\d*")
_TENSOR = re.compile(r"(mesh_)?(tp|tensor(_parallel)?|(tensor_)?model_parallel_group)", re.IGNORECASE)


class SharedTokens:
    """Sees the groups of one rank as they are made; ``tell`` learns for which rank's tokens experts are drawn.

    ``running``: how many ranks there are, if all of them run; else 0, and all draw alike.
    """

    def __init__(self, rank: int, running: int, tell: Callable[[int], object]) -> None:
        self.rank, self.running, self.tell = rank, running, tell
        self._first = rank  # of those that share tokens with this one
        self._is_known = running > 1
        self._say()

    def see(self, name: str, ranks: Sequence[int]) -> None:
        """A group of these global ranks, by the name of its purpose; empty or PyTorch's own where it has none."""
        if self.rank not in ranks:
            return
        if _TENSOR.fullmatch(name):
            self._first = min(self._first, *ranks)
        elif _UNNAMED.fullmatch(name) and 1 < len(ranks) < self.running:
            self._is_known = False
        self._say()

    def _say(self) -> None:
        self.tell(self._first if self._is_known else 0)
