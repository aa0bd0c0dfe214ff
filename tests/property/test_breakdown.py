"""What must add up in every breakdown, whatever the trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import traces

from presim.analysis.notes.provenance import SPREAD, Doubts, critical_by_signature, provenance
from presim.analysis.time.breakdown import Instant, break_down
from presim.analysis.time.segments import Segments
from presim.analysis.time.steps import find_steps
from presim.engine.simulate import simulate
from presim.engine.simulation_options import Options
from presim.report.bars import apportion
from presim.trace.schema import Trace
from support import fakes

SPENT_ON_WORK = (Instant.COMPUTE, Instant.EXPOSED_COMMUNICATION, Instant.EXPOSED_COPY)


@given(traces(), st.sampled_from([0, 7, 2_000]))
def test_every_instant_of_every_step_is_counted_once(trace: Trace, latency_ns: int) -> None:
    """Compute, exposed communication, exposed copies, host-bound and idle are the step's time, in every step."""
    timeline = fakes.simulate(fakes.priced(trace), launch_latency_ns=latency_ns)
    for step in find_steps(trace, timeline).steps:
        parts = break_down(trace, timeline, step, launch_latency_ns=latency_ns)
        assert sum(parts.spent_ns.values()) == step.duration_ns
        assert min(parts.spent_ns.values()) >= 0


@given(traces())
def test_the_engines_timelines_add_up_too(trace: Trace) -> None:
    """With its latencies, queues and rendezvous."""
    options = Options()
    timeline = simulate(fakes.priced(trace), options=options, compiled=False)
    for step in find_steps(trace, timeline).steps:
        parts = break_down(trace, timeline, step, launch_latency_ns=options.launch_latency_ns)
        assert sum(parts.spent_ns.values()) == step.duration_ns
        assert parts.critical_ns.sum() == pytest.approx(sum(parts.spent_ns[kind] for kind in SPENT_ON_WORK))
        assert not parts.waiting_ns.any()  # alone in its simulation a rank waits for nobody


@given(traces())
def test_exposed_is_never_more_than_all(trace: Trace) -> None:
    """Exposed communication is part of communication, and no entry counts for more than it lasts."""
    timeline = fakes.simulate(fakes.priced(trace))
    step = find_steps(trace, timeline).steady
    parts = break_down(trace, timeline, step)
    assert parts.spent_ns[Instant.EXPOSED_COMMUNICATION] <= parts.communication_ns <= step.duration_ns
    assert np.all(parts.critical_ns <= timeline.end_ns - timeline.start_ns + 1e-6)


@given(traces())
def test_the_critical_parts_of_entries_are_the_time_spent_on_work(trace: Trace) -> None:
    """Nothing is lost when an instant is dealt out to the entries that share it."""
    priced = fakes.priced(trace)
    timeline = fakes.simulate(priced)
    step = find_steps(trace, timeline).steady
    parts = break_down(trace, timeline, step)
    on_work = sum(parts.spent_ns[kind] for kind in SPENT_ON_WORK)
    assert parts.critical_ns.sum() == pytest.approx(on_work)
    assert sum(critical_by_signature(priced, parts)) == pytest.approx(on_work)
    shares = provenance(priced, parts, step.duration_ns).by_origin
    busy = on_work + parts.spent_ns[Instant.HOST_BOUND]
    assert sum(share.seconds for share in shares) == pytest.approx(busy / 1e9)
    for host_ns in (0, step.duration_ns // 3, 10 * step.duration_ns):
        low, high = Doubts.of(priced, parts, step.duration_ns, host_ns).interval()
        assert 0 <= low <= step.duration_ns <= high
        assert high >= SPREAD.host_slower * host_ns


@given(st.lists(st.tuples(st.integers(-5, 25), st.integers(0, 9)), max_size=8))
def test_a_shared_length_is_shared_completely(intervals: list[tuple[int, int]]) -> None:
    """The parts that intervals get of a window are together what they cover of it."""
    starts = np.array([start for start, _ in intervals], np.int64)
    ends = starts + np.array([length for _, length in intervals], np.int64)
    segments = Segments.cut(0, 20, starts, ends)
    everywhere = np.ones(len(segments.lengths), np.bool_)
    covered = segments.total(segments.count(starts, ends) > 0)
    assert segments.shared(everywhere, starts, ends).sum() == pytest.approx(covered)


@given(st.lists(st.floats(0, 1e6), max_size=9), st.integers(0, 200))
def test_a_bar_is_as_wide_as_it_should_be(sizes: list[float], cells: int) -> None:
    """Rounded cells add up to the width and are within one of the exact share."""
    found = apportion(sizes, cells)
    total = sum(sizes)
    assert sum(found) == (cells if total else 0)
    if total:
        assert all(abs(got - size / total * cells) < 1 + 1e-9 for got, size in zip(found, sizes))
