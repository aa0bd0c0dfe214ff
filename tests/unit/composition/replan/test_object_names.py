"""Entries refer to the last definition of the number that they name."""

from __future__ import annotations

from hypothesis import given

from presim.composition.replan.object_names import DEFINES, REFERS, definitions
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective
from property.strategies import traces

MESSAGE = Collective("send", 8, "float32", group=0, peer=1)


def test_an_address_names_the_block_that_was_allocated_there_last() -> None:
    build = TraceBuilder()
    for _ in range(2):
        build.alloc(4096, 512)
        build.free(4096, 512)
    build.retag(8192, 1)  # type: ignore[arg-type]
    assert definitions(build.trace()).tolist() == [0, 0, 2, 2, -1]


def test_a_launch_is_its_first_call_and_zero_is_none() -> None:
    build = TraceBuilder()
    for launch in (0, 3, 3, 0):
        build.work(MESSAGE, launch_group=launch)
    assert definitions(build.trace()).tolist() == [-1, 1, 1, -1]


def by_one_pass(trace: Trace) -> list[int]:
    """What `definitions` says, entry by entry."""
    latest: dict[tuple[str, int], int] = {}
    result = [-1] * len(trace)
    for entry, (kind, number) in enumerate(zip(trace.columns["kind"].tolist(), trace.columns["object"].tolist())):
        if kind == Kind.COLLECTIVE:
            result[entry] = latest.setdefault(("launch", number), entry) if number else -1
        elif kind in DEFINES:
            result[entry] = latest[DEFINES[kind], number] = entry
        elif kind in REFERS:
            result[entry] = latest.get((REFERS[kind], number), -1)
    return result


@given(traces())
def test_sorting_says_what_one_pass_says(trace: Trace) -> None:
    assert definitions(trace).tolist() == by_one_pass(trace)
