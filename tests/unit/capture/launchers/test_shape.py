"""A launch command and presim's own options agree on the world's shape, or one sentence says where they do not."""

from __future__ import annotations

import pytest

from presim.capture.launchers.launch import Launch, Shape
from presim.capture.launchers.shape import agreed
from presim.errors import InputError

TORCHRUN = Shape(1, 1)  # what it does by itself


def command(said: Shape, otherwise: Shape = TORCHRUN) -> Launch:
    return Launch("train.py", launcher="torchrun", said=said, otherwise=otherwise)


@pytest.mark.parametrize(
    ("said", "asked", "shape"),
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
def test_each_fills_in_what_the_other_leaves_open(said: Shape, asked: Shape, shape: Shape) -> None:
    assert agreed(command(said), asked, described=False) == shape


def test_a_described_cluster_goes_before_the_launchers_default() -> None:
    assert agreed(command(Shape()), Shape(), described=True) == Shape()
    assert agreed(command(Shape(2)), Shape(), described=True) == Shape(2)


def test_without_a_launcher_the_options_say_everything() -> None:
    assert agreed(Launch("train.py"), Shape(2, 8, 17), described=False) == Shape(2, 8, 17)  # refused where clusters are


@pytest.mark.parametrize(
    ("said", "asked", "sentence"),
    [
        (
            Shape(16, 8),
            Shape(2),
            "the torchrun command means 16 nodes, and --nodes says 2: leave --nodes out or correct one",
        ),
        (Shape(16, 8), Shape(None, 4), "means 8 processes on each node, and --gpus-per-node says 4"),
        (Shape(None, None, 16), Shape(None, None, 8), "means 16 processes in all, and --world-size says 8"),
        (
            Shape(16, 8),
            Shape(None, None, 64),
            "--world-size 64 does not fit the torchrun command: 16 nodes x 8 processes are 128, not 64; leave one out",
        ),
        (Shape(2, 4, 16), Shape(), "means 2 nodes x 4 processes, which are not 16: correct it"),
    ],
)
def test_a_contradiction_is_one_sentence(said: Shape, asked: Shape, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        agreed(command(said), asked, described=False)
    assert sentence in str(caught.value)
