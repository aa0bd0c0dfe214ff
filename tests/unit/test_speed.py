"""Work that everybody waits for takes no more CPU time than some multiple of a loop that is timed in the same process.

Multiples are three to four times what was measured, because machines and versions of Python differ. Each time is the
smallest of a few.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.planner.knobs import FREE, Extent
from presim.planner.space import Space
from presim.planner.strategy.legal import legal_points
from support import fakes, workloads

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=64)
EXTENT = Extent(world=512, domain=8, layers=80, experts=1, global_batch=1024)
DEFAULT_KNOBS = Space(
    {name: tuple(values(EXTENT)) for name, values in FREE.items()}, {"sequence": 8192, "global_batch": 1024}
)


def cpu_s(work: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        begin_s = time.process_time()
        work()
        times.append(time.process_time() - begin_s)
    return min(times)


def calibration() -> int:
    """A loop over dictionaries, tuples and integers, as presim's own Python code."""
    counts: dict[tuple[int, int], int] = {}
    for number in range(100_000):
        name = (number % 97, number % 13)
        counts[name] = counts.get(name, 0) + len(name)
    return len(counts)


def list_legal_plans() -> None:
    assert sum(1 for _ in legal_points(DEFAULT_KNOBS, lambda point: CLUSTER, 80)) > 5_000


def simulate_steps() -> None:
    assert fakes.simulate(fakes.priced(workloads.llama_8b(steps=3, layers=32)))


@pytest.mark.parametrize(("work", "most_loops"), [(list_legal_plans, 60), (simulate_steps, 3)])
def test_work_takes_no_more_than_so_many_loops(work: Callable[[], object], most_loops: float) -> None:
    loops = cpu_s(work, 2) / cpu_s(calibration, 5)
    assert loops < most_loops, f"{work.__name__} took {loops:.1f} loops"
