"""Micro-batches of captured steps are found by a kernel that comes as often, or several times in each."""

from __future__ import annotations

import pytest

from presim.evaluation.repeated_rounds import fewer_micro_batches, repeats_of
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Elementwise


def kernel(elements: int) -> Elementwise:
    return Elementwise(bytes_read=4 * elements, bytes_written=4, elements=elements, dtype="float32")


def steps(*micro_batches: int, layers: int = 2, embeds: bool = False) -> Trace:
    build = TraceBuilder(default_manifest())
    for number in micro_batches:
        for _ in range(number):
            if embeds:
                build.work(kernel(3), stream=0, phase=Phase.FORWARD)
            for _ in range(layers):
                build.work(kernel(4), stream=0, phase=Phase.FORWARD)
            build.work(kernel(5), stream=0, phase=Phase.BACKWARD)
        build.step()
    return build.trace()


def begins(trace: Trace, micro_batches: int) -> list[int] | None:
    repeats = repeats_of([trace], micro_batches, micro_batches + 6, 2)
    return None if repeats is None else repeats.begins[0].tolist()


def test_a_kernel_of_each_micro_batch_says_where_it_begins() -> None:
    assert begins(steps(3, embeds=True), 3) == [0, 4, 8]


def test_a_kernel_of_each_layer_says_so_once_in_a_micro_batch() -> None:
    assert begins(steps(3), 3) == [0, 3, 6]


def test_a_first_step_of_fewer_micro_batches_is_not_repeated() -> None:
    assert begins(steps(2, 3, embeds=True), 3) == [9, 13, 17]


def test_steps_whose_kernels_are_no_multiple_of_micro_batches_are_not_repeated() -> None:
    assert begins(steps(3), 4) is None


def test_whole_rounds_are_repeated() -> None:
    repeats = repeats_of([steps(4, embeds=True)], 4, 10, 2)
    assert repeats is not None
    assert (repeats.period, repeats.times, repeats.is_measured) == (2, 3, True)
    assert repeats_of([steps(4, embeds=True)], 4, 9, 2) is None


@pytest.mark.parametrize(
    ("micro_batches", "stages", "captured", "expected"),
    [(144, 8, 40, 40), (64, 8, 17, None), (80, 8, 17, 40), (64, 1, 4, 8), (15, 1, 4, None)],
)
def test_few_micro_batches_answer_where_these_are_at_most_half(
    micro_batches: int, stages: int, captured: int, expected: int | None
) -> None:
    assert fewer_micro_batches(micro_batches, stages, captured) == expected
