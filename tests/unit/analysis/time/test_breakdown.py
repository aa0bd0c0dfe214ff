"""Each kind of instant on a timeline drawn by hand."""

from __future__ import annotations

import numpy as np
import pytest

from presim.analysis.time.breakdown import Instant, break_down
from presim.analysis.time.steps import Step
from presim.engine.timeline import Timeline
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Trace
from presim.trace.signatures import Collective, Copy, Elementwise, Gemm

GEMM = Gemm(8, 8, 8, 1, "bfloat16")
SMALL = Elementwise(8, 8, 8, "bfloat16")
REDUCE = Collective("all_reduce", 8, "bfloat16", 0)


def spent(build: TraceBuilder, times: list[tuple[int, int, int]], **more: int) -> dict[str, int]:
    """Break down a trace with (issue, start, end) per entry; the parts that are not 0."""
    trace = build.trace()
    parts = break_down(trace, drawn(times), whole(trace, times), **more)
    return {kind.name.lower(): value for kind, value in parts.spent_ns.items() if value}


def drawn(times: list[tuple[int, int, int]]) -> Timeline:
    issue, start, end = np.array(times, np.int64).reshape(-1, 3).T
    return Timeline(issue, start, end, np.zeros_like(start), np.zeros_like(start))


def whole(trace: Trace, times: list[tuple[int, int, int]]) -> Step:
    return Step(slice(0, len(trace)), 0, max(end for _, _, end in times))


def test_communication_is_exposed_only_where_no_compute_runs() -> None:
    """Of 30 ns of communication 10 run beside a product and 20 while the issued next product waits."""
    build = TraceBuilder()
    build.work(GEMM)
    build.work(REDUCE, stream=1)
    build.work(GEMM)
    assert spent(build, [(0, 0, 20), (0, 10, 40), (0, 40, 50)]) == {"compute": 30, "exposed_communication": 20}


def test_waiting_for_other_ranks_is_separate_from_communication() -> None:
    """The collective has its turn at 5 and starts at 30, when the last rank is there; products run until 20."""
    build = TraceBuilder()
    build.work(GEMM)
    build.work(REDUCE, stream=1)
    build.work(GEMM)
    times = [(0, 0, 20), (5, 30, 40), (0, 40, 50)]
    assert spent(build, times) == {"compute": 30, "waiting": 10, "exposed_communication": 10}


def test_messages_of_one_launch_have_their_turn_together() -> None:
    """A receive beside a send waits for its neighbour since the send began, whenever that ended."""
    send, receive = (Collective(kind, 8, "bfloat16", 0, peer=1) for kind in ("send", "recv"))
    build = TraceBuilder()
    build.work(GEMM)
    build.work(send, stream=1, launch_group=3)
    build.work(receive, stream=1, launch_group=3)
    build.work(GEMM)
    trace, times = build.trace(), [(0, 0, 10), (0, 10, 20), (0, 40, 50), (0, 50, 60)]
    parts = break_down(trace, drawn(times), whole(trace, times))
    assert parts.spent_ns[Instant.WAITING] == 20
    assert parts.spent_ns[Instant.IDLE] == 0
    assert parts.waiting_ns.tolist() == [0, 0, 20, 0]


def test_a_late_host_is_blamed_even_while_communication_runs() -> None:
    """The second product is issued at 35 only: until then nothing waits for the communication."""
    build = TraceBuilder()
    build.work(GEMM)
    build.work(REDUCE, stream=1)
    build.work(GEMM)
    times = [(0, 0, 20), (0, 10, 40), (35, 40, 50)]
    assert spent(build, times) == {"compute": 30, "host_bound": 15, "exposed_communication": 5}


def test_a_host_that_waits_for_the_device_is_not_late() -> None:
    """The host waits for the communication before it issues on: that is exposed communication, not a slow host."""
    build = TraceBuilder()
    build.work(GEMM)
    build.work(REDUCE, stream=1)
    build.stream_sync(stream=1)
    build.work(GEMM)
    times = [(0, 0, 20), (0, 10, 40), (5, 5, 40), (40, 40, 50)]
    assert spent(build, times) == {"compute": 30, "exposed_communication": 20}


def test_the_launch_latency_of_an_idle_device_is_the_hosts() -> None:
    """Kernels issued every 10 ns that start 3 ns later and run for 4: the device waits for the host all the rest."""
    build = TraceBuilder()
    for _ in range(3):
        build.work(GEMM)
    times = [(0, 3, 7), (10, 13, 17), (20, 23, 27)]
    assert spent(build, times, launch_latency_ns=3) == {"compute": 12, "host_bound": 15}


def test_copies_and_helper_kernels_of_other_streams_are_exposed_copies() -> None:
    """A cast on a communication stream and a copy to the device hold the compute stream up."""
    build = TraceBuilder()
    build.work(Copy("h2d", 8))
    build.work(SMALL, stream=1)
    build.work(GEMM)
    assert spent(build, [(0, 0, 10), (0, 10, 15), (0, 15, 25)]) == {"compute": 10, "exposed_copy": 15}


def test_a_gap_that_nothing_explains_is_idle() -> None:
    """Everything is issued, nothing runs."""
    build = TraceBuilder()
    build.work(GEMM)
    build.work(GEMM)
    assert spent(build, [(0, 0, 10), (0, 14, 20)]) == {"compute": 16, "idle": 4}


def test_streams_with_products_count_as_compute_streams() -> None:
    """Two streams of products are one compute time; what runs beside itself counts once."""
    build = TraceBuilder()
    build.work(GEMM)
    build.work(GEMM, stream=3)
    trace, times = build.trace(), [(0, 0, 10), (0, 5, 15)]
    parts = break_down(trace, drawn(times), whole(trace, times))
    assert parts.compute_streams == (0, 3)
    assert parts.spent_ns[Instant.COMPUTE] == 15
    assert parts.critical_ns.tolist() == [7.5, 7.5]


def test_exposed_communication_is_shared_by_the_collectives_that_run() -> None:
    """While two collectives run, each answers for half of the wait."""
    build = TraceBuilder()
    build.work(REDUCE, stream=1)
    build.work(REDUCE, stream=2)
    build.work(GEMM)
    trace, times = build.trace(), [(0, 0, 20), (0, 10, 20), (0, 20, 30)]
    parts = break_down(trace, drawn(times), whole(trace, times))
    assert parts.critical_ns.tolist() == pytest.approx([15, 5, 10])
    assert parts.communication_ns == 20


def test_a_window_cuts_work_at_its_edges() -> None:
    """Work that reaches over the end of a step counts in it only up to there."""
    build = TraceBuilder()
    build.work(GEMM)
    build.work(GEMM)
    parts = break_down(build.trace(), drawn([(0, 0, 10), (0, 10, 30)]), Step(slice(0, 1), 5, 20))
    assert parts.spent_ns[Instant.COMPUTE] == 15


def test_an_empty_trace_has_no_time() -> None:
    """Nothing was asked of the device: every part is 0."""
    parts = break_down(TraceBuilder().trace(), drawn([]), Step(slice(0, 0), 0, 0))
    assert set(parts.spent_ns.values()) == {0}
