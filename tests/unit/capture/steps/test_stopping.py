"""When a script has run long enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from presim.capture.steps import stopping
from presim.capture.steps.loop_tree import LoopTree
from presim.capture.steps.stopping import Stop, Stopping
from support.script_loops import marks

STEP = "event('model');event('backward');event('update')"


def stopped(rule: Stopping, code: str, records: Callable[[str], int] = lambda name: 10) -> Stop | None:
    """The first decision to stop, as the script goes on."""
    tree = LoopTree()
    for mark in marks(code, records):
        advanced = tree.add(mark)
        if advanced and (stop := rule.after_iteration(tree, advanced)):
            return stop
        if not mark.position.nest and (stop := rule.after_update(tree)):
            return stop
    return None


def alike(start: int, stop: int) -> bytes:
    return b"the same"


def test_a_loop_of_large_steps_is_left_once_it_has_repeated(tmp_path: Path) -> None:
    stop = stopped(Stopping(None, True, tmp_path, alike), f"for _ in range(99): {STEP}", lambda name: 10_000)
    assert stop is not None
    assert stop.steps == 3


def test_a_loop_of_small_steps_may_be_a_warm_up(tmp_path: Path) -> None:
    """Three quick iterations before the real loop do not end the script."""
    code = f"for _ in range(3): {STEP}\nfor _ in range(99): {STEP}"
    stop = stopped(Stopping(None, True, tmp_path, alike), code)
    assert stop is not None
    assert (stop.steps, stop.loop[-1]) == (12, "2")


def test_a_period_of_several_steps_is_awaited(tmp_path: Path) -> None:
    """Every third step does something else; the first one does so once."""

    def every_third(start: int, stop: int) -> bytes:
        return b"other" if (start // 30_000) % 3 == 1 else b"usual"

    stop = stopped(Stopping(None, True, tmp_path, every_third), f"for _ in range(99): {STEP}", lambda name: 10_000)
    assert stop is not None
    assert stop.steps == 7


def test_steps_that_never_repeat_end_at_a_bound(tmp_path: Path) -> None:
    different = Stopping(None, True, tmp_path, lambda start, stop: str(start).encode())
    stop = stopped(different, f"for _ in range(99): {STEP}", lambda name: 1000)
    assert stop is not None
    assert stop.steps == 24


def test_a_bound_of_the_user_counts_steps_not_updates(tmp_path: Path) -> None:
    rollouts = f"for _ in range(9):\n for _ in range(20): event('model 0')\n for _ in range(4): {STEP}"
    stop = stopped(Stopping(2, True, tmp_path, alike), rollouts)
    assert stop is not None
    assert (stop.steps, stop.loop[-1]) == (2, "1")
    assert stopped(Stopping(0, True, tmp_path, alike), rollouts) is None


def test_micro_batches_are_no_steps_while_an_optimizer_waits(tmp_path: Path) -> None:
    code = "for _ in range(9):\n for _ in range(64): event('model');event('backward')\n event('update')"
    for steps, decides in ((None, True), (2, True), (None, False)):
        awaiting = Stopping(steps, decides, tmp_path / str(decides), alike, lambda: True)
        stop = stopped(awaiting, code, lambda name: 1000)
        assert stop is None or stop.loop == ("1",)
    without_optimizer = stopped(Stopping(None, True, tmp_path, alike), code, lambda name: 1000)
    assert without_optimizer is not None
    assert without_optimizer.loop == ("1", "2")


def test_an_optimizer_that_never_steps_is_not_awaited_for_ever(tmp_path: Path) -> None:
    code = "for _ in range(99): event('model');event('backward')"
    stop = stopped(Stopping(None, True, tmp_path, alike, lambda: True), code, lambda name: 100_000)
    assert stop is not None
    assert stop.steps < 40


@pytest.mark.parametrize(("sums_gradients", "loop"), [(True, ("1",)), (False, ("1", "2"))])
def test_only_an_engine_that_sums_gradients_is_awaited_beyond_a_time(
    sums_gradients: bool, loop: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU time is what a slow machine needs more of, too; what is stopped earlier says that no update was seen."""
    monkeypatch.setattr(stopping, "_MOST_WITHOUT_UPDATE_CPU_S", -1.0)
    code = "for _ in range(9):\n for _ in range(64): event('model');event('backward')\n event('update')"
    awaiting = Stopping(None, True, tmp_path, alike, lambda: True, lambda: sums_gradients)
    stop = stopped(awaiting, code, lambda name: 1000)
    assert stop is not None
    assert (stop.loop, stop.is_update_missing) == (loop, not sums_gradients)


def test_without_a_loop_updates_are_counted(tmp_path: Path) -> None:
    assert stopped(Stopping(2, True, tmp_path, alike), "\n".join([STEP] * 5)) == Stop(2)


def test_another_rank_stops_after_the_step_that_the_first_has_published(tmp_path: Path) -> None:
    code = f"for _ in range(9): {STEP}"
    assert stopped(Stopping(None, False, tmp_path, alike), code) is None
    first = stopped(Stopping(3, True, tmp_path, alike), code)
    assert stopped(Stopping(None, False, tmp_path, alike), code) == first


def test_at_the_end_of_the_script_other_ranks_take_the_first_one_s_loop(tmp_path: Path) -> None:
    tree = LoopTree(marks(f"for _ in range(9): {STEP}"))
    decided = Stopping(None, True, tmp_path, alike).at_end(tree)
    assert decided.steps == 0
    assert Stopping(None, False, tmp_path, alike).at_end(tree) == decided
