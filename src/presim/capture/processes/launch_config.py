"""The settings of a capture that are fixed before its processes start."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from presim.capture.launchers.launch import Launch
from presim.capture.processes.blocked import Blocked
from presim.capture.processes.forks import Forks
from presim.hardware.cluster import Cluster


class Simulator(Protocol):
    """Answers the emulated device while scripts run: `presim.live.server.LiveServer`."""

    def add(self, rank: int, directory: Path, others: Sequence[int] = ()) -> dict[str, str]:
        """Listen in a rank's log directory; variables for its environment. All ranks are added before one starts.

        ``others``: the ranks that do as it does.
        """
        ...

    def check(self) -> None:
        """Raise what went wrong."""
        ...


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    """What all waves of a job have in common."""

    program: Launch
    cluster: Cluster
    libraries: list[Path]
    hook: Path
    limit_s: float
    stdout: int | None = None  # file descriptor for what the script prints; None: ours
    is_quiet: bool = False  # no rank is heard unless it fails
    sanitize: bool = False  # check that streams wait for each other
    values: dict[str, str] | None = None  # policies, as `presim.capture.device_values.policies.parse` checked them
    # One for each wave; it can ask which ranks wait for others.
    simulator: Callable[[Blocked], contextlib.AbstractContextManager[Simulator]] | None = None
    forks: Forks = dataclasses.field(default_factory=Forks)  # starts processes


@dataclasses.dataclass(frozen=True)
class Wave:
    """Ranks to run together."""

    ranks: tuple[int, ...]
    steps: int  # stop after so many optimizer steps; 0: run to the end
    samples: frozenset[int] = frozenset()  # ranks that run to be compared: one that fails does not end the others
    hidden: frozenset[int] = frozenset()  # ranks whose output is kept back, unless they fail
    stands_for: Mapping[int, Sequence[int]] = dataclasses.field(default_factory=dict)  # rank -> others, ascending
    are_alike: bool = True  # those others do as it does; else they are heard through it, for want of anybody better
    is_scout: bool = False  # it ends where it meets ranks that it cannot do without
