"""Which loop's iterations are a script's steps.

To add a case, add a line: a script, the line of its loop, its steps.
"""

from __future__ import annotations

import pytest

from presim.capture.steps.loop_tree import LoopTree
from support.script_loops import marks

MODEL, UPDATE = "event('model');event('backward')", "event('update')"

CASES = {
    "a plain loop": (f"for _ in range(5): {MODEL}; {UPDATE}", "1", 4),
    "epochs of batches": (f"for _ in range(3):\n for _ in range(4): {MODEL}; {UPDATE}\n event('model 0')", "2", 12),
    "accumulation in an inner loop": (f"for _ in range(3):\n for _ in range(4): {MODEL}\n {UPDATE}", "1", 2),
    "accumulation by remainder": (f"for i in range(13):\n {MODEL}\n if i % 4 == 3: {UPDATE}", "1", 3),
    "a critic's updates before the generator's": (
        f"for _ in range(3):\n for _ in range(5): {MODEL}; {UPDATE}\n {MODEL}; {UPDATE}",
        "1",
        2,
    ),
    "a critic in every iteration, a generator in some": (
        f"for i in range(9):\n {MODEL}; {UPDATE}\n if i % 3 == 2: {MODEL}; {UPDATE}",
        "1",
        8,
    ),
    "a rollout before mini-batches": (
        f"for _ in range(3):\n for _ in range(20): event('model 0')\n for _ in range(4): {MODEL}; {UPDATE}",
        "1",
        2,
    ),
    "epochs of mini-batches after a rollout": (
        "for _ in range(3):\n for _ in range(20): event('model 0')\n"
        f" for _ in range(2):\n  for _ in range(4): {MODEL}; {UPDATE}",
        "1",
        2,
    ),
    "a probe before the loop": (f"{MODEL}; {UPDATE}\nfor _ in range(5): {MODEL}; {UPDATE}", "2", 4),
    "a loop of warm-ups before the loop": (
        f"for _ in range(3): {MODEL}; {UPDATE}\nfor _ in range(5): event('replay 1'); {UPDATE}",
        "2",
        4,
    ),
    "warm-ups before epochs that only run batches": (
        f"for _ in range(5): {MODEL}; {UPDATE}\nfor _ in range(3):\n for _ in range(4): {MODEL}; {UPDATE}",
        "3",
        11,
    ),
    "rounds of clients that only run batches": (
        f"for _ in range(3):\n for _ in range(2):\n  for _ in range(4): {MODEL}; {UPDATE}\n event('model 0')",
        "3",
        24,
    ),
    "an update with what an epoch left": (
        f"for _ in range(3):\n for i in range(10):\n  {MODEL}\n  if i % 4 == 3: {UPDATE}\n {UPDATE}",
        "2",
        9,
    ),
    "an outer optimizer": (
        f"for _ in range(3):\n for _ in range(5): {MODEL}; {UPDATE}\n {UPDATE}",
        "1",
        2,
    ),
    "updates for each task, then one with what all tasks left": (
        f"for _ in range(3):\n for _ in range(4):\n  for _ in range(5): {MODEL}; {UPDATE}\n  {MODEL}\n {UPDATE}",
        "1",
        2,
    ),
    "several optimizers in a loop": (f"for _ in range(4):\n {MODEL}\n for _ in range(2): {UPDATE}", "1", 3),
    "no optimizer": (f"for _ in range(5): {MODEL}", "1", 4),
    "evaluation now and then": (f"for i in range(9):\n {MODEL}; {UPDATE}\n if i % 3 == 2: event('model 0')", "1", 8),
    "a loop that tries again": (f"while True:\n for _ in range(5): {MODEL}; {UPDATE}\n break", "2", 4),
    "batches before which each epoch evaluates": (
        f"for _ in range(1):\n event('model 0')\n for _ in range(90): {MODEL}; {UPDATE}",
        "3",
        89,
    ),
}


@pytest.mark.parametrize(("code", "loop", "steps"), CASES.values(), ids=CASES)
def test_a_step_is_what_the_outer_loop_repeats(code: str, loop: str, steps: int) -> None:
    """The last iteration may go on: it is a step only once it is known to have ended."""
    step_loop = LoopTree(marks(code)).step_loop()
    assert (step_loop.key, len(step_loop.step_ends())) == (loop, steps)


def test_a_step_ends_behind_its_last_update_or_where_the_next_begins() -> None:
    with_updates = LoopTree(marks(f"for _ in range(3): {MODEL}; {UPDATE}; event('model 0')"))
    assert with_updates.step_loop().step_ends() == [21, 61]
    without = LoopTree(marks(f"for _ in range(3): {MODEL}"))
    assert without.step_loop().step_ends() == [20, 40]


def test_a_script_without_a_loop_has_no_step_loop() -> None:
    tree = LoopTree(marks("\n".join([f"{MODEL}; {UPDATE}"] * 3)))
    assert tree.step_loop() is tree.root
    assert tree.update_ends == [21, 51, 81]


def test_a_rollout_that_has_not_come_again_gives_way_at_the_end() -> None:
    code = f"for _ in range(1):\n for _ in range(20): event('model 0')\n for _ in range(4): {MODEL}; {UPDATE}"
    tree = LoopTree(marks(code))
    assert tree.step_loop().key == "1"
    assert tree.step_loop(is_over=True).key == "3"


@pytest.mark.parametrize(
    ("code", "loop", "steps"),
    [
        ("for _ in range(5): event('model 0')", "1", 4),
        ("for _ in range(3):\n for _ in range(4): event('model 0')", "2", 11),
        ("for _ in range(5):\n event('model 0')\n for _ in range(4): event('model 0')", "1", 4),
        ("for _ in range(2): event('model 0')", "", 0),
        ("event('model 0')", "", 0),
    ],
)
def test_a_script_that_does_not_train_steps_through_its_own_loop(code: str, loop: str, steps: int) -> None:
    step_loop = LoopTree(marks(code)).calling_loop()
    assert (step_loop.key, len(step_loop.step_ends())) == (loop, steps)


def test_iterations_without_an_update_belong_to_the_step_that_ends_with_one() -> None:
    tree = LoopTree(marks(f"for i in range(9):\n {MODEL}\n if i % 4 == 3: {UPDATE}"))
    assert [len(group) for group in tree.step_loop().groups()] == [4, 4]


@pytest.mark.parametrize("follows", ["\nevent('model 0')", ""])
def test_work_after_a_loop_belongs_to_none_of_its_iterations(follows: str) -> None:
    """That the loop has ended is seen at the next mark only, 90 records after the last one of the loop."""
    sizes = iter([10, 10, 10, 90, 10])
    tree = LoopTree(marks(f"for _ in range(4): event('model 0'){follows}", lambda _: next(sizes)))
    tree.close(120)
    assert tree.calling_loop().step_ends() == [10, 20, 30, 40]
