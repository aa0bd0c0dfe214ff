"""Which rows a fit leaves out, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from presim.cost.fitting.fit_corrections import usual_rows
from presim.cost.fitting.fit_samples import Sample
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Gemm


def sample(timed: list[tuple[Gemm, str, float]]) -> Sample:
    """Rows of one class, all trained on."""
    rows = tuple(Measurement(gpu="b200", signature=work, duration_ns=ns, source=name) for work, name, ns in timed)
    target = np.log([ns for _, _, ns in timed])
    return Sample(rows, np.zeros((len(rows), 1)), np.ones(len(rows)), target, np.array(["train"] * len(rows)))


def shapes(count: int) -> list[Gemm]:
    return [Gemm(1, 64, 64 + number, 1, "bfloat16", layout="NT") for number in range(count)]


@pytest.mark.parametrize(("third_ns", "kept"), [(1100.0, True), (1200.0, False), (850.0, False)])
def test_a_row_that_two_others_contradict_is_left_out(third_ns: float, kept: bool) -> None:
    work = shapes(400)
    timed = [(each, name, 1000.0) for each in work for name in ("one", "two")]
    found = usual_rows("gemm-half", sample([*timed, (work[0], "three", third_ns)]))
    assert found[:-1].all()
    assert found[-1] == kept


def test_of_two_that_differ_neither_is_left_out() -> None:
    work = shapes(400)
    timed = [(each, name, ns) for each in work for name, ns in (("one", 1000.0), ("two", 2000.0))]
    assert usual_rows("gemm-half", sample(timed)).all()


def test_a_source_less_like_training_is_kept_where_there_is_nothing_else() -> None:
    lone = [(each, "vidur", 1000.0) for each in shapes(600)]
    assert usual_rows("gemm-half", sample(lone)).all()
    beside = [(each, "aiconfigurator/vllm", 1000.0) for each in shapes(600)]
    assert usual_rows("gemm-half", sample(lone + beside)).sum() == 600
