"""Loops of functions, from their bytecode."""

from __future__ import annotations

from presim.capture.steps.code_loops import loops_of

NESTED = """
def train(epochs, batches):
    while epochs:
        epochs -= 1
        for batch in batches:
            if not batch:
                continue
            try:
                batch()
            except ValueError:
                break
        else:
            print("epoch")
    return [batch for batch in batches]
"""


def test_a_loop_is_named_by_its_first_line_and_lies_within_the_loop_around_it() -> None:
    space: dict[str, object] = {}
    exec(compile(NESTED, "train.py", "exec"), space)
    outer, inner = loops_of(space["train"].__code__)[:2]  # type: ignore[attr-defined]
    assert [loop.key for loop in (outer, inner)] == ["train.py:4", "train.py:5"]
    assert outer.contains(inner.start)
    assert outer.contains(inner.stop)
    assert not inner.contains(outer.stop)


def test_straight_code_has_no_loops() -> None:
    assert loops_of(compile("a = 1\nif a:\n    a = 2\n", "train.py", "exec")) == ()
