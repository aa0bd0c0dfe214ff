"""Positions in the loops of a script."""

from __future__ import annotations

import gc
import weakref

import pytest

from presim.capture.steps.positions import LoopPositions
from support.script_loops import positions


def iterations(code: str, name: str) -> dict[str, int]:
    """By loop, how often it has begun another iteration or been entered between two events of a name."""
    counts: dict[str, int] = {}
    for called, position in positions(code):
        if called == name and position.changed < len(position.nest):
            key = position.nest[position.changed]
            counts[key] = counts.get(key, 0) + 1
    return counts


@pytest.mark.parametrize(
    "loop",
    [
        "for _ in range(5):\n    event('model')\n    event('update')",
        "count = 5\nwhile count:\n    count -= 1\n    event('model')\n    event('update')",
        "for _ in range(5):\n    try:\n        event('model')\n    finally:\n        event('update')",
        "def step():\n    event('model')\n    event('update')\nfor _ in range(5):\n    step()",
        "def batches():\n    yield from range(5)\nfor _ in batches():\n    event('model')\n    event('update')",
        "def step(_):\n    event('model')\n    event('update')\n[step(_) for _ in range(5)]",
        "class Trainer:\n    def fit(self):\n        while not self.done():\n            self.advance()\n    left = 5\n"
        "    def advance(self):\n        event('model')\n        event('update')\n        self.left -= 1\n"
        "    def done(self):\n        return not self.left\nTrainer().fit()",
    ],
)
def test_every_way_to_write_a_loop_gives_one_loop_with_its_iterations(loop: str) -> None:
    assert list(iterations(loop, "model").values()) == [5]
    assert iterations(loop, "update") == {}


def test_some_loops_are_seen_from_their_second_iteration_on() -> None:
    """Those outside Python, and those whose condition does the work: it is compiled before the loop and within it."""
    assert iterations("def step(_):\n    event('model')\nlist(map(step, range(5)))", "model") == {"3": 4}
    condition = (
        "left = [5]\ndef step():\n    event('model')\n    left[0] -= 1\n    return left[0]\nwhile step():\n    pass"
    )
    assert list(iterations(condition, "model").values()) == [4]


def test_an_inner_loop_begins_anew_in_each_iteration_of_the_outer_one() -> None:
    code = "for _ in range(2):\n    for _ in range(3):\n        event('model')\n    event('update')"
    seen = [(name, *position.nest, position.changed, position.is_entered) for name, position in positions(code)]
    one_iteration = [("model", "1", "2", 1, True), ("model", "1", "2", 1, False), ("model", "1", "2", 1, False)]
    assert seen[1:4] == [*one_iteration[1:], ("update", "1", 1, True)]
    assert seen[4:] == [("model", "1", "2", 0, False), *seen[1:4]]


def test_calls_of_one_function_in_a_row_are_not_a_loop() -> None:
    code = "def step():\n    event('model')\n    event('update')\nstep()\nstep()\nstep()"
    assert {position.nest for _, position in positions(code)} == {()}


def test_the_variables_of_a_frame_are_not_kept_alive() -> None:
    class Tensor:
        pass

    follow = LoopPositions()

    def function() -> weakref.ref[Tensor]:
        tensor = Tensor()
        follow.now()
        return weakref.ref(tensor)

    alive = function()
    gc.collect()
    assert alive() is None
