"""Later requests go to the worker whose turn it is, with its next number."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from presim.composition.replan.requests import later, loaders, workers_by_loader
from presim.trace.builder import TraceBuilder
from presim.trace.schema import fetch_request
from support.replanned_programs import kernel


def request(loader: int, workers: int, number: int) -> int:
    return fetch_request(loader, number % workers, number // workers)


@given(st.integers(1, 5), st.integers(0, 40), st.integers(0, 40), st.integers(0, 3))
def test_shifts_follow_the_turns_of_the_workers(workers: int, number: int, shift: int, loader: int) -> None:
    build = TraceBuilder()
    for turn in range(workers):
        build.fetch(request(loader, workers, turn), 100)
    requests = np.array([request(loader, workers, number)])
    shifted = later(requests, np.array([shift]), workers_by_loader(build.trace()))
    assert shifted.tolist() == [request(loader, workers, number + shift)]


def test_entries_know_their_loader() -> None:
    build = TraceBuilder()
    build.fetch(request(2, 1, 0), 100)
    build.work(kernel(1))
    build.fetch_wait(request(2, 1, 0))
    assert loaders(build.trace(), np.arange(3)).tolist() == [2, -1, 2]
