"""Settings by which rank processes on this machine exchange small payloads (shim/libs/nccl_mail.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from presim.trace import spans


def together(directory: Path, rank: int, world_size: int) -> dict[str, str]:
    """The variables of one rank's process; all of them share the directory, in which `write_ranks` was called before.

    A process that was not given these takes itself to be alone: every rank holds what it holds.
    """
    return {"PRESIM_RANKS_DIR": str(directory), "PRESIM_RANK": str(rank), "PRESIM_WORLD_SIZE": str(world_size)}


def write_ranks(directory: Path, ranks: Mapping[int, Sequence[int]]) -> None:
    """Say which ranks run together, and which others each of them stands for; before any of them starts.

    A rank that nobody stands for is taken by each to hold what it holds itself.
    """
    lines = (f"{rank} {spans.to_text(list(others))}".rstrip() for rank, others in sorted(ranks.items()))
    (directory / "ranks").write_text("\n".join(lines) + "\n")
