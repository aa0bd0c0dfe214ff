"""The answer as text and as a page: every phase is there, and nothing is fetched."""

from __future__ import annotations

import msgspec
import pytest

from presim.post_training.rl_answer import RlAnswer, answer
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_page import render
from presim.post_training.rl_text import headline
from presim.units import GIB
from support import rl_jobs


def _answer(**fields: object) -> RlAnswer:
    built = rl_jobs.built(rl_jobs.job(steps=4, **fields))  # type: ignore[arg-type]
    return answer(built, simulate(built.job, built.prices), price_per_gpu_hour=2.0)


def test_phases_of_each_pool_add_up_to_the_step() -> None:
    for shown in (_answer(), _answer(staleness=1.0), _answer(is_colocated=True)):
        for pool in shown.pools:
            total_s = sum(phase.seconds for phase in shown.phases if phase.pool == pool.name)
            assert abs(total_s - shown.figures.step_time_s) < 1e-6 * total_s


def test_money_is_the_gpus_of_the_steps() -> None:
    figures = _answer().figures
    assert figures.money_per_thousand_steps == pytest.approx(1000 * 4 * figures.step_time_s / 3600 * 2.0)


def test_the_page_has_each_phase_and_fetches_nothing() -> None:
    shown = _answer(staleness=1.0)
    page = render(shown)
    assert all(phase.phase in page for phase in shown.phases)
    assert "http" not in page
    assert "Staleness 1.00 steps on average, 1 at most" in " ".join(headline(shown))


def test_a_job_that_cannot_run_says_so_before_its_step() -> None:
    fitting = _answer(is_colocated=True)
    assert fitting.misfit == []
    first = fitting.memory[0]
    too_large = msgspec.structs.replace(first, capacity_bytes=first.total_bytes - 3 * GIB)
    shown = msgspec.structs.replace(fitting, memory=[too_large, *fitting.memory[1:]])
    assert headline(shown)[0].startswith(f"Does not fit: the {first.phase} on {first.pool} by 3.0 GiB. ")
