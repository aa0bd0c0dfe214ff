"""Settings with which rank processes on this machine exchange small payloads (shim/libs/nccl_mail.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from presim.trace import spans


def exchange_variables(directory: Path, rank: int, world_size: int) -> dict[str, str]:
    """Environment variables of one rank's process. Call `write_ranks` on the shared directory first.

    Without these, a process assumes that it runs alone and that every rank holds the same data.
    """
    return {"PRESIM_RANKS_DIR": str(directory), "PRESIM_RANK": str(rank), "PRESIM_WORLD_SIZE": str(world_size)}


def write_ranks(directory: Path, ranks: Mapping[int, Sequence[int]]) -> None:
    """Write which ranks run together and which absent ranks each represents, before any of them starts.

    A rank without a representative is assumed by each to hold the same data as itself.
    """
    lines = (f"{rank} {spans.to_text(list(represented))}".rstrip() for rank, represented in sorted(ranks.items()))
    (directory / "ranks").write_text("\n".join(lines) + "\n")
