"""Estimators that the user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.cost.estimator_selection import selection_of
from presim.cost.measured import table
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.what_if import changes_of
from presim.hardware import choose_cluster
from presim.report.content import origins
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Phase
from presim.trace.signatures import Elementwise, Gemm

CLUSTER = choose_cluster(gpu="h100-sxm", world_size=1)
PRODUCT = Gemm(m=8192, n=8192, k=8192, batch=1, dtype="bfloat16")
SUM = Elementwise(1 << 30, 1 << 30, 1 << 29, "bfloat16", operator="aten::add")


def evaluated(texts: list[str], folders: list[Path] | None = None) -> Evaluation:
    build = TraceBuilder()
    for _ in range(2):
        build.work(PRODUCT, phase=Phase.FORWARD)
        build.work(SUM, phase=Phase.BACKWARD)
        build.step()
    changes = changes_of((), (), (), estimators=selection_of(texts, folders or []))
    return evaluate(Job.of(build.trace()), CLUSTER, Options.of(host_factor=0.0, host_time=False), changes=changes)


def durations(evaluation: Evaluation) -> tuple[int, ...]:
    return tuple(price.duration_ns for price in evaluation.priced.prices)


def test_the_roofline_of_a_step_is_its_closed_form() -> None:
    """Arithmetic at the peak, bytes at the memory's bandwidth."""
    product, addition = durations(evaluated(["roofline"]))
    assert product == pytest.approx(2 * 8192**3 / CLUSTER.gpu.peak("bfloat16") * 1e9, abs=1)  # type: ignore[operator]
    assert addition == pytest.approx((2 << 30) / CLUSTER.gpu.memory_bytes_per_s * 1e9, abs=1)


def test_a_family_has_its_own_estimator() -> None:
    """The others keep presim's."""
    usual, mixed = durations(evaluated([])), evaluated(["gemm=roofline"])
    assert durations(mixed) == (durations(evaluated(["roofline"]))[0], usual[1])
    assert "What if: gemm by roofline." in mixed.result.notes


def test_a_chain_goes_on_where_an_estimator_has_no_price(tmp_path: Path) -> None:
    """A table holds the product only: the sum is by the next in the chain, or keeps presim's price and is counted."""
    row = Measurement(gpu="h100-sxm", signature=PRODUCT, duration_ns=2e6, source=PROFILE)
    table.write([row], tmp_path / f"own{table.SUFFIX}", {})
    usual, roofline = durations(evaluated([])), durations(evaluated(["roofline"]))
    assert durations(evaluated(["benchmark,roofline"], [tmp_path])) == (2_000_000, roofline[1])
    alone = evaluated(["benchmark"], [tmp_path])
    assert durations(alone) == (2_000_000, usual[1])
    share = usual[1] / (usual[1] + 2_000_000)
    assert any(
        note == f"{share:.1%} of device work keeps presim's own prices: --estimator has none."
        for note in alone.result.notes
    )


def test_by_name_the_default_chain_gives_the_default_prices() -> None:
    assert durations(evaluated(["learned,analytic"])) == durations(evaluated([]))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ["guess"],
            "--estimator guess: there is no estimator 'guess'; name roofline, analytic, learned, benchmark, measured",
        ),
        (["roofline", "learned"], "--estimator learned is the second choice for all work; leave one of them"),
        (["sort=roofline"], "--estimator sort: the job has no such work; name one of elementwise, gemm"),
        (
            ["measured"],
            "--estimator measured: no row of h100-sxm was measured; name a folder with tables of it (--prices DIR; "
            "`presim fit` makes them)",
        ),
    ],
)
def test_what_cannot_be_priced_by_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        evaluated(texts)
    assert str(error.value) == message


def test_a_lower_bound_widens_the_upper_end_only() -> None:
    """Steps take 1.2 to 1.7 times their roofline: the interval and the report's line say so."""
    result = evaluated(["roofline"]).result
    assert result.step_time_s is not None
    assert result.step_time_high_s is not None
    assert result.step_time_low_s is not None
    assert result.step_time_high_s > 1.5 * result.step_time_s
    assert result.step_time_low_s > 0.85 * result.step_time_s
    (share,) = result.provenance.by_origin
    assert (share.uncertainty, share.longer) == pytest.approx((0.02, 0.7))
    assert origins(result) == "100.0% analytic -2/+70%"
