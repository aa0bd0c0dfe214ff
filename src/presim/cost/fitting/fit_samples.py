"""Measurements of one class of work on one GPU as arrays: features, and the error of the formula."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.analytic.analytic_estimator import AnalyticEstimator, slowdown_at_work
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.fitting.split import Group, group_of, part_of
from presim.cost.learned import features
from presim.cost.measured.measured_rows import AT_WORK, Measurement
from presim.hardware import Gpu, catalogue

Array = NDArray[np.float64]
_LEAST_SHARE = 0.3  # of a duration that must remain after subtracting the other work in it
_CHUNK = 1000  # rows priced at once; limits the memory of the analytic formulas


@dataclasses.dataclass(frozen=True)
class Sample:
    """Rows of one class on one GPU, as arrays."""

    rows: tuple[Measurement, ...]
    features: Array
    analytic_ns: Array
    target: Array  # log of measured over analytic
    part: NDArray[np.str_]

    def of(self, is_selected: NDArray[np.bool_]) -> Sample:
        """Some of the rows."""
        rows = tuple(row for row, selected in zip(self.rows, is_selected) if selected)
        return Sample(
            rows,
            self.features[is_selected],
            self.analytic_ns[is_selected],
            self.target[is_selected],
            self.part[is_selected],
        )


def by_class(rows: Sequence[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
    """Rows by class of work and GPU, in the order of their names, without classes that are never corrected."""
    rows_by_class: dict[tuple[str, str], list[Measurement]] = collections.defaultdict(list)
    for row in rows:
        kind = features.kind_of(row.signature)
        if kind is not None:
            rows_by_class[kind, row.gpu].append(row)
    return dict(sorted(rows_by_class.items()))


def sample_of(kind: str, gpu_id: str, rows: Sequence[Measurement], group: Group = group_of) -> Sample:
    """Features and targets of rows of one class. Other work in a duration is subtracted at its analytic price.

    ``group``: what is held out as a whole.
    """
    estimator = AnalyticEstimator(
        catalogue.gpu(gpu_id), burst=True
    )  # tables are measured on GPUs that idle between kernels
    other_work_ns = [_sum_ns(estimator, row) for row in rows]
    own_ns = np.array(
        [max(row.duration_ns - other, _LEAST_SHARE * row.duration_ns) for row, other in zip(rows, other_work_ns)]
    )
    own_ns /= _slowdown(catalogue.gpu(gpu_id), rows)
    blocks, prices = [], []
    for start in range(0, len(rows), _CHUNK):
        signatures = [row.signature for row in rows[start : start + _CHUNK]]
        analytic = np.array([price.duration_ns for price in estimator.price(signatures) if price], float)
        prices.append(analytic)
        blocks.append(features.KINDS[kind].rows(signatures, analytic, device_of(catalogue.gpu(gpu_id))))
    analytic_ns = np.concatenate(prices)
    parts = np.array([part_of(row.signature, group) for row in rows])
    return Sample(tuple(rows), np.concatenate(blocks), analytic_ns, np.log(own_ns / analytic_ns), parts)


def _slowdown(gpu: Gpu, rows: Sequence[Measurement]) -> Array:
    """Time of a row over its time on an idle GPU, by the formula."""
    factors = np.ones(len(rows))
    indices = [index for index, row in enumerate(rows) if row.source in AT_WORK]
    signatures = [rows[index].signature for index in indices]
    factors[indices] = slowdown_at_work(gpu, signatures, AnalyticEstimator(gpu).price(signatures))
    return factors


def _sum_ns(estimator: AnalyticEstimator, row: Measurement) -> float:
    return (
        float(sum(price.duration_ns for price in estimator.price(list(row.other_work)) if price))
        if row.other_work
        else 0.0
    )
