"""Simulate a training run with failures: checkpoints, lost work, restarts, spare nodes, repairs."""

from __future__ import annotations

import dataclasses
import heapq
import random

MAX_FAILURES = 1_000_000


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A training run; times in seconds."""

    work_s: float  # steps without failures and checkpoints
    interval_s: float  # work between checkpoints
    checkpoint_s: float  # pause of training per checkpoint
    restart_s: float  # from a failure to the first new step
    mtbf_s: float  # of the whole cluster
    nodes: int
    spares: int = 0  # idle spare nodes
    repair_s: float = 0.0  # until a node is back
    hardware_share: float = 0.0  # share of failures that remove a node
    replicas: int = 0  # data-parallel replicas that continue if others miss nodes; 0: all nodes are needed


@dataclasses.dataclass(frozen=True)
class Spent:
    """How the wall-clock seconds of one training run were spent."""

    work_s: float
    checkpoints_s: float
    lost_s: float  # work and checkpoints lost to failures
    restarts_s: float
    waiting_s: float  # for a node's repair
    slower_s: float  # extra time of work because replicas were missing
    failures: int

    @property
    def total_s(self) -> float:
        """Sum of all parts."""
        return (
            self.work_s + self.checkpoints_s + self.lost_s + self.restarts_s + self.waiting_s + self.slower_s
        )  # fmt: skip


class NeverEndsError(Exception):
    """Failures occur faster than progress."""


def train(job: TrainingRun, seed: int) -> Spent:
    """Simulate one training run; the same seed gives the same result.

    Raises:
        NeverEndsError: the run did not end within a million failures.
    """
    draw = random.Random(seed)
    run = _Run(job)
    while run.done_s < job.work_s:
        if run.failures >= MAX_FAILURES:
            raise NeverEndsError
        run.until_failure(draw.expovariate(1 / job.mtbf_s))
        if run.done_s < job.work_s:
            run.fail(draw)
    return run.spent()


class _Run:
    """One run. Work counts when a checkpoint contains it, or at the end."""

    def __init__(self, job: TrainingRun) -> None:
        self.job = job
        self.now_s = self.done_s = self.checkpoints_s = self.lost_s = 0.0
        self.restarts_s = self.waiting_s = self.slower_s = 0.0
        self.failures = 0
        self.broken: list[float] = []  # times at which nodes under repair are back

    def until_failure(self, left_s: float) -> None:
        """Work for this time, or to the end; work since the last checkpoint is lost."""
        job, speed = self.job, self._speed()
        segment = job.interval_s / speed + job.checkpoint_s
        segment_count = int(min(left_s // segment, (job.work_s - self.done_s) // job.interval_s))
        self._count(segment_count * job.interval_s, segment_count, speed)
        left_s -= segment_count * segment
        remaining_s = (job.work_s - self.done_s) / speed
        if remaining_s <= min(left_s, job.interval_s / speed):  # the last piece needs no checkpoint
            self._count(job.work_s - self.done_s, 0, speed)
        else:
            self.lost_s += left_s
            self.now_s += left_s

    def fail(self, draw: random.Random) -> None:
        """Restart, repeatedly if failures interrupt it, on spare or remaining nodes."""
        job = self.job
        while True:
            self.failures += 1
            if draw.random() < job.hardware_share:
                heapq.heappush(self.broken, self.now_s + job.repair_s)
            self._wait_for_nodes()
            until = draw.expovariate(1 / job.mtbf_s)
            took = min(until, job.restart_s)
            self.restarts_s += took
            self.now_s += took
            if until >= job.restart_s or self.failures >= MAX_FAILURES:
                return

    def spent(self) -> Spent:
        return Spent(
            self.done_s,
            self.checkpoints_s,
            self.lost_s,
            self.restarts_s,
            self.waiting_s,
            self.slower_s,
            self.failures,
        )

    def _count(self, work_s: float, checkpoints: int, speed: float) -> None:
        took = checkpoints * self.job.checkpoint_s
        self.done_s += work_s
        self.slower_s += work_s / speed - work_s
        self.checkpoints_s += took
        self.now_s += work_s / speed + took

    def _missing(self) -> int:
        while self.broken and self.broken[0] <= self.now_s:
            heapq.heappop(self.broken)
        return max(0, len(self.broken) - self.job.spares)

    def _wait_for_nodes(self) -> None:
        while (missing := self._missing()) and (not self.job.replicas or missing >= self.job.replicas):
            self.waiting_s += self.broken[0] - self.now_s
            self.now_s = self.broken[0]

    def _speed(self) -> float:
        """Relative speed of the work: each missing node stops one replica."""
        return 1.0 - self._missing() / self.job.replicas if self.job.replicas else 1.0
