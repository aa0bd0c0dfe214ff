"""Merging the shape of a launch command with presim's own options."""

from __future__ import annotations

import pytest

from presim.capture.launchers.launch import Launch, Shape
from presim.capture.launchers.shape import merge_shapes
from presim.errors import InputError

TORCHRUN = Shape(1, 1)  # what it does by itself


def command(shape: Shape, default_shape: Shape = TORCHRUN) -> Launch:
    return Launch("train.py", launcher="torchrun", shape=shape, default_shape=default_shape)


@pytest.mark.parametrize(
    ("given", "requested", "merged"),
    [
        (Shape(16, 8), Shape(), Shape(16, 8)),
        (Shape(16, 8), Shape(16, 8), Shape(16, 8)),
        (Shape(16), Shape(None, 8), Shape(16, 8)),
        (Shape(None, 8), Shape(2), Shape(2, 8)),
        (Shape(None, 8), Shape(), Shape(1, 8)),
        (Shape(), Shape(), Shape(1, 1)),
        (Shape(), Shape(2, 8), Shape(2, 8)),
        (Shape(), Shape(None, None, 128), Shape(None, None, 128)),
        (Shape(None, None, 4), Shape(), Shape(1, None, 4)),
        (Shape(None, None, 16), Shape(None, 8), Shape(None, 8, 16)),
        (Shape(2, 8, 16), Shape(), Shape(2, 8, 16)),
    ],
)
def test_each_fills_in_what_the_other_does_not_specify(given: Shape, requested: Shape, merged: Shape) -> None:
    assert merge_shapes(command(given), requested, described=False) == merged


def test_a_described_cluster_overrides_the_launcher_s_default() -> None:
    assert merge_shapes(command(Shape()), Shape(), described=True) == Shape()
    assert merge_shapes(command(Shape(2)), Shape(), described=True) == Shape(2)


def test_without_a_launcher_only_the_options_count() -> None:
    assert merge_shapes(Launch("train.py"), Shape(2, 8, 17), described=False) == Shape(
        2, 8, 17
    )  # refused where clusters are


@pytest.mark.parametrize(
    ("given", "requested", "sentence"),
    [
        (
            Shape(16, 8),
            Shape(2),
            "the torchrun command specifies 16 nodes, but --nodes is 2: leave --nodes out or correct one",
        ),
        (Shape(16, 8), Shape(None, 4), "specifies 8 processes on each node, but --gpus-per-node is 4"),
        (Shape(None, None, 16), Shape(None, None, 8), "specifies 16 processes in all, but --world-size is 8"),
        (
            Shape(16, 8),
            Shape(None, None, 64),
            "--world-size 64 does not fit the torchrun command: 16 nodes x 8 processes are 128, not 64; leave one out",
        ),
        (Shape(2, 4, 16), Shape(), "specifies 2 nodes x 4 processes, which are not 16: correct it"),
    ],
)
def test_a_contradiction_is_refused_with_one_sentence(given: Shape, requested: Shape, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        merge_shapes(command(given), requested, described=False)
    assert sentence in str(caught.value)
