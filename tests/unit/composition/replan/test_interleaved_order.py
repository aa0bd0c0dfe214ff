"""Passes of an interleaved stage are in Megatron's order, and few captured stages have one of each role."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.composition.replan.interleaved_order import InterleavedOrder
from presim.composition.replan.pass_order import Pass
from presim.composition.replan.replan_interleaved import captured_micro_batches
from presim.composition.replan.stage_sources import Ends, captured_stages, source_stages


@given(st.integers(2, 8), st.integers(2, 5), st.integers(2, 4), st.data())
def test_each_micro_batch_goes_forward_through_a_chunk_once_and_back_later(
    stages: int, chunks: int, groups: int, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    order = InterleavedOrder.of(groups * stages, chunks, stages, stage)
    passes = list(order.passes())
    assert [order.position(turn) for turn in passes] == list(range(len(passes)))
    assert len(set(passes)) == len(passes) == 2 * groups * stages * chunks
    for number in range(order.micro_batches):
        forward, backward = order.position(Pass(True, number)), order.position(Pass(False, number))
        assert forward is not None
        assert backward is not None
        assert forward < backward
    assert order.position(Pass(False, order.micro_batches)) is None


def test_backward_passes_begin_with_the_last_chunk() -> None:
    """As in the schedule of Megatron's paper: two stages of two chunks, the second stage."""
    order = InterleavedOrder.of(micro_batches=4, chunks=2, stages=2, stage=1)
    turns = "".join(f"{'F' if turn.is_forward else 'B'}{turn.micro_batch}" for turn in order.passes())
    assert turns == "F0F1F2B2F3B3F4B0F5B1F6B6F7B7B4B5"


@pytest.mark.parametrize(
    ("stages", "ends"),
    [
        (6, (1, 1)), (8, (1, 1)), (7, (1, 2)), (8, (2, 2)), (9, (2, 1)),
        pytest.param(16, (1, 1), marks=pytest.mark.long), pytest.param(16, (2, 2), marks=pytest.mark.long),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunks", [2, 5])
def test_few_stages_have_all_parts_of_passes_of_more(stages: int, ends: Ends, chunks: int) -> None:
    captured_number = captured_stages(ends)
    first, last = captured_micro_batches(captured_number)
    for stage, source in enumerate(source_stages(ends, stages, captured_number)):
        for captured_micro_batches_of_step, micro_batches in (
            (first, 2 * stages),
            (last, 3 * stages),
            (last, 9 * stages),
        ):
            captured = InterleavedOrder.of(captured_micro_batches_of_step, chunks, captured_number, source, ends)
            order = InterleavedOrder.of(micro_batches, chunks, stages, stage, ends)
            for sources in order.part_sources(captured):
                assert set(sources) == set(order.passes())
                assert all(turn.is_forward == captured_turn.is_forward for turn, captured_turn in sources.items())
            of_layers, _ = order.part_sources(captured)
            assert all(order.own_layers(turn) == captured.own_layers(source) for turn, source in of_layers.items())


@given(st.integers(2, 4), st.integers(0, 3))
def test_an_order_repeats_itself(chunks: int, stage: int) -> None:
    """Each part of a pass is the source of one with the same role: its own micro-batch, or another of the chunk."""
    order = InterleavedOrder.of(12, chunks, 4, stage)
    for sources in order.part_sources(order):
        for turn, source in sources.items():
            assert turn.is_forward == source.is_forward
            assert order.position(source) is not None
