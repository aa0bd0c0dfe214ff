"""Simulates a training with failures: checkpoints, lost work, restarts, spare nodes, repairs."""

from __future__ import annotations

import dataclasses
import heapq
import random

_MOST_FAILURES = 1_000_000


@dataclasses.dataclass(frozen=True)
class Job:
    """What is trained on what; times in seconds."""

    work_s: float  # of steps, without any failure or checkpoint
    interval_s: float  # of work between checkpoints
    checkpoint_s: float  # in which training stands still for one
    restart_s: float  # from a failure to the first new step
    mtbf_s: float  # of the whole cluster
    nodes: int
    spares: int = 0  # nodes that stand by
    repair_s: float = 0.0  # until a node is back
    hardware_share: float = 0.0  # of the failures that take a node away
    replicas: int = 0  # data-parallel replicas, of which those without broken nodes go on; 0: all nodes are needed


@dataclasses.dataclass(frozen=True)
class Spent:
    """Where the wall-clock seconds of one training went."""

    work_s: float
    checkpoints_s: float
    lost_s: float  # work and checkpoints that a failure undid
    restarts_s: float
    waiting_s: float  # for a node to be repaired
    slower_s: float  # work took longer because replicas were missing
    failures: int

    @property
    def total_s(self) -> float:
        """All of it."""
        return (
            self.work_s + self.checkpoints_s + self.lost_s + self.restarts_s + self.waiting_s + self.slower_s
        )  # fmt: skip


class NeverEndsError(Exception):
    """Failures come faster than progress."""


def train(job: Job, seed: int) -> Spent:
    """One training; the same seed gives the same one.

    Raises:
        NeverEndsError: after a million failures the end was not reached.
    """
    draw = random.Random(seed)
    run = _Run(job)
    while run.done_s < job.work_s:
        if run.failures >= _MOST_FAILURES:
            raise NeverEndsError
        run.until_failure(draw.expovariate(1 / job.mtbf_s))
        if run.done_s < job.work_s:
            run.fail(draw)
    return run.spent()


class _Run:
    """Work is counted when a checkpoint holds it, or at the end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.now_s = self.done_s = self.checkpoints_s = self.lost_s = 0.0
        self.restarts_s = self.waiting_s = self.slower_s = 0.0
        self.failures = 0
        self.broken: list[float] = []  # when nodes that are being repaired will be back

    def until_failure(self, left_s: float) -> None:
        """Work for so long, or to the end; what no checkpoint holds at the failure is lost."""
        job, speed = self.job, self._speed()
        segment = job.interval_s / speed + job.checkpoint_s
        rest = (job.work_s - self.done_s) / speed
        whole = int(min(left_s // segment, (job.work_s - self.done_s) // job.interval_s))
        self._count(whole * job.interval_s, whole, speed)
        left_s -= whole * segment
        rest = (job.work_s - self.done_s) / speed
        if rest <= min(left_s, job.interval_s / speed):  # the last piece needs no checkpoint
            self._count(job.work_s - self.done_s, 0, speed)
        else:
            self.lost_s += left_s
            self.now_s += left_s

    def fail(self, draw: random.Random) -> None:
        """Restart, as often as failures interrupt it, on spare nodes or on what is left."""
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
            if until >= job.restart_s or self.failures >= _MOST_FAILURES:
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
        """Each missing node stops one replica."""
        return 1.0 - self._missing() / self.job.replicas if self.job.replicas else 1.0
