"""Prices by estimators that the user names (``--estimator``), for a whole job or for families of work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from presim.cost import estimators
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.chain import Chain, demands_of
from presim.cost.learned.learned_estimator import PACKAGED, LearnedEstimator
from presim.cost.measured import table
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.measured.measured_rows import PROFILE
from presim.cost.price import Estimator, PricedTrace
from presim.cost.roofline import RooflineEstimator
from presim.errors import InputError
from presim.hardware import Cluster, Gpu
from presim.system import plugins
from presim.trace.schema import Kind
from presim.trace.signatures import Collective, family
from presim.units import percent

_Folders = tuple[Path, ...]


def _measured(gpu: Gpu, folders: _Folders) -> Estimator:
    estimator = estimators.of_tables(gpu, folders)
    if estimator is None:
        raise _unmeasured("measured", gpu, "name a folder with tables of it (--prices DIR; `presim fit` makes them)")
    return estimator


def _benchmarked(gpu: Gpu, folders: _Folders) -> Estimator:
    rows = table.read([path for folder in folders for path in table.find(folder)], gpu.id).rows
    own_rows = [row for row in rows if row.gpu == gpu.id and row.source == PROFILE]
    if not own_rows:
        remedy = "time its operators there with `presim profile` and name the folder (--prices DIR)"
        raise _unmeasured("benchmark", gpu, remedy)
    return MeasuredEstimator(gpu, own_rows)


def _unmeasured(name: str, gpu: Gpu, remedy: str) -> InputError:
    return InputError(f"--estimator {name}: no row of {gpu.id} was measured; {remedy}")


_BUILT_IN: Mapping[str, Callable[[Gpu, _Folders], Estimator]] = {
    "roofline": lambda gpu, folders: RooflineEstimator(gpu),
    "analytic": lambda gpu, folders: AnalyticEstimator(gpu),
    "learned": lambda gpu, folders: LearnedEstimator(gpu, (PACKAGED, *folders)),
    "benchmark": _benchmarked,
    "measured": _measured,
}


@dataclasses.dataclass(frozen=True)
class Selection:
    """Names of estimators in the order in which they are tried."""

    by_family: Mapping[str, tuple[str, ...]]  # family of signatures; "": all others
    folders: _Folders  # with the user's tables and models

    def reprice(self, priced: PricedTrace, cluster: Cluster) -> PricedTrace:
        """The trace with the prices of these estimators; work that none of them covers keeps its price.

        Raises:
            InputError: an estimator has no data on the GPU, or the job has no work of a family.
        """
        signatures = priced.trace.signatures
        self._check_families(priced)
        prices, uncovered, unpriced = list(priced.prices), set(priced.uncovered), set()
        for name, chain_names in self.by_family.items():
            indices = [index for index, signature in enumerate(signatures) if self._key(signature) == name]
            chain = Chain([self._estimator(word, cluster.gpu) for word in chain_names], (), device_of(cluster.gpu))
            answers, guessed = chain.price_all([signatures[index] for index in indices], (), cluster)
            for position, index in enumerate(indices):
                if position not in set(guessed):
                    prices[index] = answers[position]
            covered = {index for position, index in enumerate(indices) if position not in set(guessed)}
            uncovered -= covered
            unpriced |= set(indices) - covered
        manifest = priced.trace.manifest
        demands = priced.demands and demands_of(signatures, prices, manifest.groups, cluster, manifest.nccl)
        repriced = dataclasses.replace(
            priced, prices=tuple(prices), uncovered=tuple(sorted(uncovered)), demands=demands
        )
        return dataclasses.replace(repriced, notes=(*priced.notes, *_share_note(repriced, unpriced)))

    def words(self) -> str:
        """The estimators as a clause."""
        parts = [f"{name or 'prices'} by {', then '.join(names)}" for name, names in sorted(self.by_family.items())]
        return "; ".join(parts)

    def _key(self, signature: object) -> str | None:
        """The family whose estimators price a signature, "" for those of all; None if it keeps its price."""
        if isinstance(signature, Collective):
            return None
        name = family(signature)  # type: ignore[arg-type]
        return name if name in self.by_family else "" if "" in self.by_family else None

    def _check_families(self, priced: PricedTrace) -> None:
        families = {family(signature) for signature in priced.trace.signatures if not isinstance(signature, Collective)}
        for name in self.by_family:
            if name and name not in families:
                raise InputError(
                    f"--estimator {name}: the job has no such work; name one of {', '.join(sorted(families))}"
                )

    def _estimator(self, name: str, gpu: Gpu) -> Estimator:
        if name in _BUILT_IN:
            return _BUILT_IN[name](gpu, self.folders)
        estimator: Estimator | None = plugins.factories(estimators.GROUP)[name](gpu)
        if estimator is None:
            raise InputError(f"--estimator {name}: the plug-in does not know {gpu.id}")
        return estimator


def _share_note(priced: PricedTrace, unpriced: set[int]) -> tuple[str, ...]:
    """A sentence on the share of device work whose prices the named estimators do not cover."""
    trace = priced.trace
    signature = trace.columns["signature"][trace.mask(Kind.WORK)].astype(np.int64)
    durations = priced.durations_ns()[trace.mask(Kind.WORK)]
    kept_ns = int(durations[np.isin(signature, sorted(unpriced))].sum())
    if not kept_ns:
        return ()
    return (
        f"{percent(kept_ns / int(durations.sum()))} of device work keeps presim's own prices: --estimator has none.",
    )


def selection_of(texts: Sequence[str], folders: Sequence[Path]) -> Selection | None:
    """The selection from ``NAME[,NAME…]`` and ``FAMILY=NAME[,NAME…]``; None if there is no text.

    Raises:
        InputError: an estimator is unknown, or a family is named twice.
    """
    by_family: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, chain = text.rpartition("=")
        if name in by_family:
            raise InputError(f"--estimator {text} is the second choice for {name or 'all work'}; leave one of them")
        by_family[name] = tuple(word.strip() for word in chain.split(","))
        known_names = (*_BUILT_IN, *plugins.factories(estimators.GROUP))
        for word in by_family[name]:
            if word not in known_names:
                raise InputError(f"--estimator {text}: there is no estimator {word!r}; name {', '.join(known_names)}")
    return Selection(by_family, tuple(folders)) if by_family else None
