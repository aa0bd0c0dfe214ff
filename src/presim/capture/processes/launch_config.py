"""The settings of a capture that are fixed before its processes start."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from presim.capture.launchers.launch import Launch
from presim.capture.processes.blocked import BlockedRanks
from presim.capture.processes.forks import Forks
from presim.hardware.cluster import Cluster


class Simulator(Protocol):
    """Provides the emulated device's times while scripts run: `presim.evaluation.live.server.LiveServer`."""

    def add(self, rank: int, directory: Path, represented_ranks: Sequence[int] = ()) -> dict[str, str]:
        """Listen in a rank's log directory; returns variables for its environment. Add all ranks before one starts.

        ``represented_ranks``: the ranks that this one represents.
        """
        ...

    def check(self) -> None:
        """Raise any error of the simulation."""
        ...


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    """Settings shared by all waves of a job."""

    program: Launch
    cluster: Cluster
    libraries: list[Path]
    hook: Path
    limit_s: float
    stdout: int | None = None  # file descriptor for the script's stdout; None: this process's stdout
    hides_output: bool = False  # show a rank's output only if it fails
    hides_failures: bool = False  # nor then: whoever captures says what failed
    sanitize: bool = False  # check that streams synchronise
    values: dict[str, str] | None = None  # policies as returned by `presim.capture.device_values.policies.parse`
    # Creates a simulator for each wave; its argument detects ranks that wait for others.
    simulator: Callable[[BlockedRanks], contextlib.AbstractContextManager[Simulator]] | None = None
    forks: Forks = dataclasses.field(default_factory=Forks)  # starts processes
    is_one_process: bool = False  # rank 0 alone is the job, and uses all GPUs of its node


@dataclasses.dataclass(frozen=True)
class Wave:
    """Ranks that run together."""

    ranks: tuple[int, ...]
    steps: int | None  # stop after this many steps; 0: run to the end; None: until they repeat
    samples: frozenset[int] = frozenset()  # ranks that run for comparison: a failure does not end the others
    hidden: frozenset[int] = frozenset()  # ranks whose output is shown only if they fail
    stands_for: Mapping[int, Sequence[int]] = dataclasses.field(default_factory=dict)  # captured rank -> absent ranks
    are_alike: bool = True  # the absent ranks do the same work; else they only exchange through the captured rank
    differing_values: bool = False  # policies for device values give each rank its own
    is_scout: bool = False  # end when the script exchanges messages with ranks that do not run
