"""The learned estimator: the analytic price, corrected by what was measured on this GPU or on its nearest relative."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from presim.cost.analytic.estimator import AnalyticEstimator
from presim.cost.bounds import datasheet_ns
from presim.cost.learned import features
from presim.cost.learned.schema import Model, read
from presim.cost.learned.sustained import Sustained, sustained_of
from presim.cost.learned.trees import Forest
from presim.cost.price import Origin, Price
from presim.hardware import Gpu, catalogue
from presim.trace.signatures import Signature

# Generations whose kernels are alike, nearest first: who may correct whom where a GPU has no model of its own.
_RELATIVES = {
    "ampere": ("ampere",),
    "ada": ("ada", "ampere"),
    "hopper": ("hopper",),
    "blackwell": ("blackwell", "hopper"),
    "blackwell-ultra": ("blackwell", "hopper"),
    "volta": ("volta",),
}
TRANSFERRED = 0.15  # added in quadrature where another GPU's model answers; see docs/concepts/prices.md
_WIDEST = 0.9


@functools.cache
def packaged() -> tuple[Model, ...]:
    """The models that come with presim."""
    folder = resources.files("presim.cost.learned") / "models"
    return tuple(read(str(path)) for path in sorted(folder.iterdir(), key=str) if path.name.endswith(".json"))


class LearnedEstimator:
    """Prices the classes of work for which there is a model of this GPU or of a relative."""

    name = "learned"

    def __init__(self, gpu: Gpu, models: Iterable[Model] | None = None) -> None:
        self.gpu = gpu
        self.analytic = AnalyticEstimator(gpu)
        self.models = _choose(gpu, packaged() if models is None else tuple(models))
        self.sustained = sustained_of(gpu.id)

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """One price per signature; None where no model covers its class."""
        prices: list[Price | None] = [None] * len(signatures)
        by_kind: dict[str, list[int]] = {}
        for place, signature in enumerate(signatures):
            kind = features.kind_of(signature)
            if kind in self.models:
                by_kind.setdefault(kind, []).append(place)
        for kind, places in by_kind.items():
            for place, price in zip(places, self._price_kind(kind, [signatures[place] for place in places])):
                prices[place] = price
        return prices

    def _price_kind(self, kind: str, signatures: list[Signature]) -> list[Price]:
        model = self.models[kind]
        bases = [base for base in self.analytic.price(signatures) if base is not None]
        analytic_ns = np.array([base.duration_ns for base in bases], float)
        rows = features.KINDS[kind].rows(signatures, analytic_ns, self.analytic.device)
        predicted = analytic_ns * np.exp(forest(model).evaluate(rows))
        classes = np.searchsorted(model.widths_us, predicted / 1e3)
        extra = 0.0 if model.gpu == self.gpu.id else TRANSFERRED
        return [
            self._finish(signature, base, float(duration), float(np.hypot(model.widths[number], extra)), model)
            for signature, base, duration, number in zip(signatures, bases, predicted, classes)
        ]

    def _finish(self, signature: Signature, base: Price, duration: float, width: float, model: Model) -> Price:
        factor = self.sustained if base.bound == "compute" else Sustained()
        duration = max(duration * factor.factor, datasheet_ns(signature, self.gpu), 1.0)
        width = min(float(np.hypot(width, factor.uncertainty)), _WIDEST)
        name = f"learned/{model.kind}" + ("" if model.gpu == self.gpu.id else f" from {model.gpu}")
        return Price(int(np.ceil(duration)), Origin.LEARNED, width, name, base.bound)


@functools.lru_cache(maxsize=64)
def _forest(key: int, model: Model) -> Forest:
    return Forest.of(model)


def forest(model: Model) -> Forest:
    """The model's trees in arrays, made once."""
    return _forest(id(model), model)


def _choose(gpu: Gpu, models: Sequence[Model]) -> dict[str, Model]:
    """For each class of work the model of this GPU, else of the nearest relative that has one; later ones win."""
    chosen: dict[str, Model] = {}
    ranks: dict[str, tuple[int, float]] = {}
    for model in models:
        rank = _distance(gpu, model.gpu)
        if rank is not None and rank <= ranks.get(model.kind, (99, 0.0)):
            chosen[model.kind], ranks[model.kind] = model, rank
    return chosen


@functools.lru_cache(maxsize=4096)
def _distance(gpu: Gpu, other_id: str) -> tuple[int, float] | None:
    """Generations apart, then how different the ridge point is; None where nothing is to be learned from."""
    if other_id == gpu.id:
        return -1, 0.0
    other = catalogue.gpu(other_id)
    relatives = _RELATIVES.get(gpu.architecture, ())
    if other.architecture not in relatives:
        return None
    return relatives.index(other.architecture), abs(float(np.log(_ridge(gpu) / _ridge(other))))


def _ridge(gpu: Gpu) -> float:
    return (gpu.peak("float16") or gpu.peak("float32") or 1.0) / gpu.memory_bytes_per_s


def load(folders: Sequence[Path]) -> list[Model]:
    """All model files in folders."""
    return [read(path) for folder in folders for path in sorted(folder.glob("*.json"))]
