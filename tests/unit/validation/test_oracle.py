"""The error of a prediction, split by a recording whose truth is planted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from presim.cost.chain import price_trace
from presim.cost.price import PricedTrace
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.hardware import Cluster
from presim.sources.source import SourceRequest
from presim.studies.validation.oracle import OracleSplit, render, split_error
from presim.trace.job import Job
from presim.trace.schema import Trace
from presim.trace.signatures import Collective, Gemm
from support.profiles import CLUSTER, exported, program


def recorded(folder: Path, factors: dict[type, float], *, is_host_bound: bool = True) -> tuple[list[Path], Evaluation]:
    """Profiles of a run whose work takes presim's own prices times a factor by type."""

    def planted(trace: Trace, cluster: Cluster) -> PricedTrace:
        priced = price_trace(trace, cluster)
        prices = [
            msgspec.structs.replace(price, duration_ns=round(price.duration_ns * factors.get(type(signature), 1.0)))
            for signature, price in zip(trace.signatures, priced.prices)
        ]
        return dataclasses.replace(priced, prices=tuple(prices), demands=())

    options = Options.of(host_factor=1.0 if is_host_bound else 0.01, contention=False)
    evaluation = evaluate(Job.of([program(0, layers=3), program(1, layers=3)]), CLUSTER, options, pricer=planted)
    return exported(folder, evaluation), evaluation


def parts(split: OracleSplit) -> dict[str, float]:
    return {part.name: part.seconds for part in split.parts}


def test_the_parts_add_up_to_the_error(tmp_path: Path) -> None:
    paths, _ = recorded(tmp_path, {Gemm: 1.7, Collective: 0.6})
    split = split_error(paths, SourceRequest())
    assert sum(parts(split).values()) == pytest.approx(split.predicted_s - split.measured_s, abs=1e-12)


def test_planted_slow_products_are_an_error_of_prices(tmp_path: Path) -> None:
    """The products of the recording take 1.5 times presim's price: the prediction is short by a third of them."""
    paths, _ = recorded(tmp_path, {Gemm: 1.5}, is_host_bound=False)
    split = split_error(paths, SourceRequest())
    (gemm,) = [row for row in split.families if row.family == "gemm"]
    assert gemm.predicted_s == pytest.approx(gemm.measured_s / 1.5, rel=1e-3)
    prices = next(part for part in split.parts if part.name == "prices")
    assert prices.device_s == pytest.approx(gemm.predicted_s - gemm.measured_s, rel=0.05)
    assert abs(parts(split)["replay"]) < 0.01 * split.measured_s
    assert abs(parts(split)["communication"]) < 0.01 * split.measured_s


def test_planted_slow_collectives_are_an_error_of_communication(tmp_path: Path) -> None:
    paths, _ = recorded(tmp_path, {Collective: 3.0}, is_host_bound=False)
    shares = {
        name: value / split.measured_s
        for split in [split_error(paths, SourceRequest())]
        for name, value in parts(split).items()
    }
    assert shares["communication"] < -0.1
    assert all(abs(shares[name]) < 0.01 for name in ("replay", "missing", "prices"))


def test_a_saved_capture_splits_host_time_and_work(tmp_path: Path) -> None:
    """The capture is the recorded program with twice the host time."""
    from presim.trace import job_store

    paths, _ = recorded(tmp_path, {})
    slow = [program(rank, layers=3) for rank in (0, 1)]
    slow = [
        dataclasses.replace(
            trace,
            columns={**trace.columns, "host_ns": trace.columns["host_ns"] * 2},
            manifest=msgspec.structs.replace(trace.manifest, host_probe_ns=0, reference_host=True),
        )
        for trace in slow
    ]
    job_store.save(slow, tmp_path / "job")
    split = split_error(paths, SourceRequest(), tmp_path / "job")
    assert [part.name for part in split.parts][-2:] == ["work", "host"]
    assert abs(parts(split)["work"]) < 0.03 * split.measured_s
    assert parts(split)["host"] > 0.2 * split.measured_s


def test_a_page_names_the_parts(tmp_path: Path) -> None:
    paths, _ = recorded(tmp_path, {})
    text = render(split_error(paths, SourceRequest()))
    assert "| part | error in ms | of the step | in ms without host time | what it is |" in text
    assert text.count("\n") > 10


def test_a_file_without_a_measured_step_is_refused(tmp_path: Path) -> None:
    from presim.trace import job_store

    job_store.save([program(0), program(1)], tmp_path / "job")
    with pytest.raises(InputError) as error:
        split_error([tmp_path / "job"], SourceRequest())
    assert str(error.value) == (
        f"{tmp_path / 'job'} has no measured step: name a profile of PyTorch's profiler, one file for each rank"
    )
