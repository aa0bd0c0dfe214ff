"""Traffic, memory and launches of each optimizer."""

from __future__ import annotations

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import MemoryBound
from support.captured import Job, run

PARAMETERS = 16 * (512 * 512 + 512)
SIZE = 4 * PARAMETERS

pytestmark = pytest.mark.torch_cuda


def moved(job: Job) -> tuple[float, float]:
    """Bytes read and written by the optimizer's kernels, relative to the model's size."""
    work = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, MemoryBound)]
    return sum(one.bytes_read for one in work) / SIZE, sum(one.bytes_written for one in work) / SIZE


@pytest.mark.parametrize(
    ("arguments", "reads", "writes"),
    [
        (("Adam", "fused"), 4, 3),  # parameters, gradients, two moments; all but the gradients
        (("AdamW", "fused"), 4, 3),
        (("SGD", "fused"), 3, 2),  # parameters, gradients, momentum
        # lerp 2, mul 1, addcmul 3, sqrt 1, two scalings 2, addcdiv 3: one kernel each
        (("Adam", "foreach"), 12, 7),
        (("SGD", "foreach"), 5, 3),  # momentum: mul 1, add 2; parameters: add 2
    ],
)
def test_a_step_has_the_traffic_of_its_kernels(arguments: tuple[str, ...], reads: int, writes: int) -> None:
    assert moved(run("optimizers.py", *arguments)) == (
        pytest.approx(reads, rel=0.01),
        pytest.approx(writes, rel=0.01),
    )


def test_capturable_moves_a_little_more_than_foreach() -> None:
    """Its step counts are on the device, and it divides where foreach multiplies by a host scalar."""
    foreach, capturable = (sum(moved(run("optimizers.py", "Adam", flag))) for flag in ("foreach", "capturable"))
    assert foreach <= capturable < 1.6 * foreach


@pytest.mark.parametrize("arguments", [("Adam", "fused"), ("Adam", "foreach"), ("Adam", "capturable"), ("SGD",)])
def test_states_have_their_memory_category(arguments: tuple[str, ...]) -> None:
    """Two moments for Adam, one momentum for SGD; parameters and gradients unchanged."""
    held = run("optimizers.py", *arguments).held_after_step()
    moments = 1 if arguments[0] == "SGD" else 2
    assert held[Category.PARAMETER] == pytest.approx(SIZE, rel=0.05)
    assert held[Category.GRADIENT] == pytest.approx(SIZE, rel=0.05)
    assert held[Category.OPTIMIZER_STATE] == pytest.approx(moments * SIZE, rel=0.05)


def test_a_fused_step_is_the_fastest() -> None:
    """It reads its state once; foreach reads it once per operation."""
    fused, foreach = (run("optimizers.py", "Adam", flag).seconds(Phase.OPTIMIZER) for flag in ("fused", "foreach"))
    assert fused < foreach
