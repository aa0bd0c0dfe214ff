"""Fit one correction per class of work and GPU to measurements, and measure its error on held-out shapes."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.fitting import boost
from presim.cost.fitting.fit_samples import Sample, sample_of
from presim.cost.fitting.split import Group, group_of
from presim.cost.learned import features
from presim.cost.learned.learned_model_file import FORMAT, VERSION, HeldOut, LearnedModel, MeasurementSource
from presim.cost.learned.probes import probe_ns
from presim.cost.learned.trees import Forest
from presim.cost.measured.importers.import_tables import sample as sample_rows
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Signature

Array = NDArray[np.float64]
LIMIT = 1.0  # natural logarithm: corrections stay within e and 1/e
_MOST_ROWS = 50_000  # per source
_REFERENCE, _ENOUGH = (
    "aiconfigurator",
    500,
)  # the dataset with the most shapes and pure kernel times; number of rows that make it the reference
_WIDTHS_US = (10.0, 100.0, 1000.0)
_STATED = 0.8
_WITNESSES, _CONTRADICTED = (
    3,
    0.15,
)  # sources that timed the same work; a row further than this from their median is disturbed
# Left out if there are enough other rows: vidur rounds to a microsecond and includes event overhead.
_LESS_LIKE_TRAINING = {"gemm-half": "vidur"}


def fit_class(
    kind: str,
    gpu_id: str,
    rows: Sequence[Measurement],
    sources: Sequence[MeasurementSource],
    machine: Mapping[str, float] | None = None,
    group: Group = group_of,
    limits: boost.SizeLimits | None = None,
) -> tuple[LearnedModel, dict[str, float]]:
    """The model of one class on one GPU, and the levels of its sources.

    ``machine``: levels of sources on this GPU, for a class without a reference source. ``group``: what is held out as a
    whole. ``limits``: limits of the trees, by default those for the number of rows.
    """
    measured = sample_of(kind, gpu_id, _limit_rows_per_source(rows), group)
    usual = usual_rows(kind, measured)
    sample = measured.of(usual)
    levels = levels_of(kind, sample) or _levels_in_sample(machine or {}, sample)
    sample = dataclasses.replace(sample, target=sample.target - _of_rows(sample, levels))
    train = sample.part == "train"
    limits = limits or boost.limits_for(int(train.sum()))
    if not limits.trees:
        train = np.ones_like(train)  # a single constant: a held-out tenth would be only a few rows
    forest, thresholds, trees = _fit_trees(kind, sample, train, limits)
    correction = forest.evaluate(measured.features)
    edges, widths = _widths(measured, correction)  # the interval covers disagreement between sources
    names = {row.source for row in sample.rows}
    model = LearnedModel(
        format=FORMAT, version=VERSION, kind=kind, gpu=gpu_id, analytic=probe_ns(gpu_id), limit=LIMIT,
        features=features.KINDS[kind].features, thresholds=thresholds, trees=trees, widths_us=edges, widths=widths,
        sources=tuple(source for source in sources if any(name.startswith(source.name) for name in names)),
        levels={name: round(float(np.exp(level)), 4) for name, level in sorted(levels.items())},
        variants=tuple(sorted({features.variant(row.signature) for row in sample.rows})),
        held_out=(
            *_held_out(measured, correction, edges, widths),
            *_held_out(sample, correction[usual], edges, widths, "of what was fitted"),
        ),
    )  # fmt: skip
    return model, levels


def _levels_in_sample(levels: Mapping[str, float], sample: Sample) -> dict[str, float]:
    """The levels of sources that have rows in the sample."""
    sources = {row.source.split("/")[0] for row in sample.rows}
    return {source: level for source, level in levels.items() if source in sources}


def usual_rows(kind: str, sample: Sample) -> NDArray[np.bool_]:
    """Rows without disturbed ones, and without less suitable sources if enough others remain.

    Attention keeps only the library with the most rows: other libraries use other algorithms.
    """
    source = np.array([row.source for row in sample.rows])
    usual: NDArray[np.bool_] = source != _LESS_LIKE_TRAINING.get(kind, "")
    if kind.startswith("attention"):
        library = np.array([features.variant(row.signature) for row in sample.rows])
        names, counts = np.unique(library, return_counts=True)
        usual &= library == names[counts.argmax()]
    usual &= ~_contradicted_rows(sample)
    return usual if usual.sum() >= _ENOUGH else np.ones_like(usual)


def _contradicted_rows(sample: Sample) -> NDArray[np.bool_]:
    """Rows that contradict other sources: three sources timed the same work, and this row is far from their median.

    A shape does not show whether clocks fell or other work ran during one of the measurements.
    """
    indices_by_signature: dict[Signature, list[int]] = collections.defaultdict(list)
    for index, row in enumerate(sample.rows):
        indices_by_signature[row.signature].append(index)
    disturbed = np.zeros(len(sample.rows), bool)
    for indices in indices_by_signature.values():
        if len(indices) >= _WITNESSES:
            target = sample.target[indices]
            disturbed[indices] = np.abs(target - np.median(target)) > _CONTRADICTED
    return disturbed


def _limit_rows_per_source(rows: Sequence[Measurement]) -> list[Measurement]:
    """Limit the rows of each source, so that none dominates."""
    by_source: dict[str, list[Measurement]] = collections.defaultdict(list)
    for row in rows:
        by_source[row.source].append(row)
    return [row for name in sorted(by_source) for row in sample_rows(by_source[name], _MOST_ROWS, name)]


def _fit_trees(
    kind: str, sample: Sample, train: NDArray[np.bool_], limits: boost.SizeLimits
) -> tuple[Forest, boost.Edges, boost.Trees]:
    """Trees fitted to all rows; with an extra-trees feature, further trees are fitted to the residual."""
    names, extra_feature = features.KINDS[kind].features, features.KINDS[kind].extra_trees_feature
    column = names.index(extra_feature) if extra_feature else len(names)
    target, rows = np.clip(sample.target[train], -LIMIT, LIMIT), sample.features[train]
    common = boost.fit(np.where(np.arange(len(names)) <= column, rows, 0.0), target, limits)
    has_extra_trees = rows[:, column] > 0 if extra_feature else np.zeros(len(rows), bool)
    if has_extra_trees.sum() >= _ENOUGH:
        residual = target - Forest.of(*common, LIMIT).evaluate(rows)
        common = boost.merge(common, boost.fit(rows[has_extra_trees], residual[has_extra_trees], boost.EXTRA), column)
    return Forest.of(*common, LIMIT), *common


def levels_of(kind: str, sample: Sample) -> dict[str, float]:
    """Slowdown of sources measured under other conditions than the reference, as a logarithm.

    Without it, the trees would attribute the difference to shapes. Layouts of gradients, measured on one slow machine
    only, would appear slow. The median is taken over rows with layouts that the reference has.
    """
    source = np.array([row.source.split("/")[0] for row in sample.rows])
    reference = source == _REFERENCE
    if reference.sum() < _ENOUGH or reference.all():
        return {}
    forest, _, _ = _fit_trees(kind, sample, reference, boost.limits_for(int(reference.sum())))
    residual = sample.target - forest.evaluate(sample.features)
    alike = _laid_out_alike(kind, sample)
    names = sorted(set(source) - {_REFERENCE})
    rows_by_source = {name: (source == name) & alike for name in names}
    return {name: float(np.median(residual[rows])) for name, rows in rows_by_source.items() if rows.any()}


def _laid_out_alike(kind: str, sample: Sample) -> NDArray[np.bool_]:
    names = features.KINDS[kind].features
    if "is_transposed_b" not in names:
        return np.ones(len(sample.rows), bool)
    column = {name: sample.features[:, names.index(name)] for name in ("is_transposed_a", "is_transposed_b")}
    alike: NDArray[np.bool_] = (column["is_transposed_a"] == 0) & (column["is_transposed_b"] == 1)
    return alike


def _of_rows(sample: Sample, levels: dict[str, float]) -> Array:
    return np.array([levels.get(row.source.split("/")[0], 0.0) for row in sample.rows])


def _errors(sample: Sample, correction: Array) -> Array:
    """Relative errors of the price against the measurement, unsigned."""
    return np.abs(np.expm1(correction - sample.target))


def _relative_to_price(sample: Sample, correction: Array) -> Array:
    """Error relative to the price, which is what its interval has to cover."""
    return np.abs(np.expm1(sample.target - correction))


def _widths(sample: Sample, correction: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The 80 % interval by class of duration, from groups used neither for training nor for the test."""
    is_calibration = sample.part == "calibrate"
    if is_calibration.sum() < 30:
        is_calibration = np.ones(len(sample.rows), bool)
    off, microseconds = (
        _relative_to_price(sample, correction)[is_calibration],
        (sample.analytic_ns * np.exp(correction))[is_calibration] / 1e3,
    )
    overall_width = float(np.quantile(off, _STATED))
    widths = []
    for number in range(len(_WIDTHS_US) + 1):
        members = off[np.searchsorted(_WIDTHS_US, microseconds) == number]
        widths.append(float(np.quantile(members, _STATED)) if len(members) >= 30 else overall_width)
    return _WIDTHS_US, tuple(min(max(round(width, 4), 0.01), 0.9) for width in widths)


def _held_out(
    sample: Sample, correction: Array, edges: Sequence[float], widths: Sequence[float], only: str = ""
) -> Iterator[HeldOut]:
    """The error on the test groups (``only`` these rows, if given), and by duration, source and data type."""
    test = sample.part == "test"
    microseconds = sample.analytic_ns * np.exp(correction) / 1e3
    inside = _relative_to_price(sample, correction) <= np.array(widths)[np.searchsorted(edges, microseconds)]
    analytic = np.abs(np.expm1(-sample.target))
    error = _errors(sample, correction)
    source = np.array([row.source for row in sample.rows])
    classes = {"all": test, "from 100 us": test & (microseconds >= 100), "below 100 us": test & (microseconds < 100)}
    classes |= {f"from {name}": test & (source == name) for name in sorted(set(source))}
    dtype = np.array([str(getattr(row.signature, "dtype", "")) for row in sample.rows])
    several = sorted(set(dtype)) if len(set(dtype)) > 1 else []
    classes |= {f"in {name}": test & (dtype == name) for name in several}
    for name, is_in_class in ({only: test} if only else classes).items():
        if is_in_class.any():
            figures = (
                error[is_in_class].mean(),
                np.median(error[is_in_class]),
                analytic[is_in_class].mean(),
                inside[is_in_class].mean(),
            )
            mape, median, before, within = (round(float(figure), 4) for figure in figures)
            points = int(is_in_class.sum())
            yield HeldOut(name=name, points=points, mape=mape, median=median, analytic_mape=before, within=within)
