"""The learned estimator: the analytic price, corrected by measurements on this GPU or a related one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.bounds import datasheet_ns
from presim.cost.learned import features
from presim.cost.learned.learned_model_file import LearnedModel, read
from presim.cost.learned.probes import agree_within_rounding, probe_ns
from presim.cost.learned.trees import Forest
from presim.cost.price import Origin, Price
from presim.errors import InputError
from presim.hardware import Gpu, catalogue
from presim.hardware.constants import value
from presim.system.files import version
from presim.trace.signatures import Attention, Gemm, Signature

# A GPU without models uses those of its generation. Transfer between generations gained nothing
# (docs/decisions/learned-prices.md).
_RELATIVE = {"blackwell-ultra": "blackwell"}
TRANSFERRED = value("learned.transferred")
_WIDEST = 0.9
_SHORT_NS = 20_000  # below this, trees may predict less time for more work
# Factor on the logarithm of a correction that was measured with another layout. Half of the correction of forward
# products describes gradients best: SimuMax's 370 on B200, with corrections from the forward products of the other
# frameworks.
_OTHER_LAYOUT = 0.5
# On Blackwell, the tables list other libraries' attention as cuDNN's (cost/measured/importers/aiconfigurator.py).
# cuDNN's attention over whole tensors takes other times (validation/results/operators-attention.md).
_STANDS_IN = ("blackwell", "cudnn")
# Shortest kernels of layers in these tables: shorter ones were rounded to a microsecond and are not fitted
# (cost/measured/importers/layer_tables.py). Corrections of longer ones make additions of 1.5 us on an H100 twice as
# long as measured (validation/results/serving-h100.md).
_SHORTEST_NS = {"vidur": 5000.0, "frontier": 5000.0}
_BY_TENSOR_CORES = ("gemm", "grouped-gemm", "attention")  # prefixes of class names
_CLOCK_DOUBT = 0.5  # share of the extra time by a busy GPU's lower clocks (docs/decisions/sustained-clocks.md)


Array = NDArray[np.float64]
PACKAGED = Path(str(resources.files("presim.cost.learned") / "models"))


class LearnedEstimator:
    """Prices classes of work that have a model of this GPU or of a related one.

    ``folders``: model files, named KIND.GPU.json. A file in a later folder replaces the same file of an earlier one.
    """

    name = "learned"

    def __init__(self, gpu: Gpu, folders: Sequence[Path] = (PACKAGED,), *, burst: bool = False) -> None:
        self.gpu = gpu
        self.measured_like = AnalyticEstimator(
            gpu, burst=True
        )  # the conditions of the tables to which models are fitted
        self.analytic = AnalyticEstimator(gpu, burst=burst)
        self.paths = _choose_files(gpu, folders)
        self._versions = {kind: version(path) for kind, path in self.paths.items()}

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """One price per signature; None for classes without a model."""
        prices: list[Price | None] = [None] * len(signatures)
        by_kind: dict[str, list[int]] = {}
        for index, signature in enumerate(signatures):
            kind = features.kind_of(signature)
            if kind in self.paths:
                by_kind.setdefault(kind, []).append(index)
        for kind, covered_indices in by_kind.items():
            indices = covered_indices
            if kind.startswith("attention"):  # another library's attention uses another algorithm
                model, _ = self._model(kind)
                its = device_of(catalogue.gpu(model.gpu)).attention_generation
                alike = its == self.analytic.device.attention_generation
                indices = [
                    index
                    for index in covered_indices
                    if alike and features.variant(signatures[index]) in model.variants
                ]
            if not indices:
                continue
            selected = [signatures[index] for index in indices]
            for index, price in zip(indices, self._no_cheaper_than_halves(kind, selected)):
                prices[index] = price
        return prices

    def _model(self, kind: str) -> tuple[LearnedModel, Forest]:
        return _model(self.paths[kind], self._versions[kind])

    def _no_cheaper_than_halves(self, kind: str, signatures: list[Signature]) -> list[Price]:
        """Raise prices of short products to at least those of half their sides, so that more work is never cheaper."""
        prices = self._price_kind(kind, signatures)
        chains = {
            index: _halves(signature)
            for index, (signature, price) in enumerate(zip(signatures, prices))
            if isinstance(signature, Gemm) and price.duration_ns < _SHORT_NS
        }
        smaller: list[Signature] = list(dict.fromkeys(half for chain in chains.values() for half in chain))
        if smaller:
            least = {half: price.duration_ns for half, price in zip(smaller, self._price_kind(kind, smaller))}
            for index, chain in chains.items():
                duration = max((least[half] for half in chain), default=0)
                if duration > prices[index].duration_ns:
                    prices[index] = msgspec.structs.replace(prices[index], duration_ns=duration)
        return prices

    def _price_kind(self, kind: str, signatures: list[Signature]) -> list[Price]:
        model, forest = self._model(kind)
        bases = [base for base in self.analytic.price(signatures) if base is not None]
        burst_ns = np.array(
            [base.duration_ns for base in self.measured_like.price(signatures) if base is not None], float
        )
        rows = features.KINDS[kind].rows(signatures, burst_ns, self.analytic.device)
        shares = _shares(signatures, model) * _share_of_short(burst_ns, model)
        correction = np.exp(forest.evaluate(rows) * shares)
        sustained = np.array([base.duration_ns for base in bases]) / burst_ns
        classes = np.searchsorted(model.widths_us, burst_ns * correction / 1e3)
        doubts = [np.array(model.widths)[classes], _CLOCK_DOUBT * (sustained - 1)]
        doubts += [np.full(len(bases), 0.0 if model.gpu == self.gpu.id else TRANSFERRED)]
        widths = np.sqrt(np.square(doubts).sum(axis=0))
        return [
            self._price_of_duration(
                signature,
                base,
                base.duration_ns * float(factor),
                _widened_uncertainty(float(width), signature, base, model),
                model,
            )
            for signature, base, factor, width in zip(signatures, bases, correction, widths)
        ]

    def _price_of_duration(
        self, signature: Signature, base: Price, duration: float, width: float, model: LearnedModel
    ) -> Price:
        duration = max(duration, datasheet_ns(signature, self.gpu), 1.0)
        name = f"learned/{model.kind}" + ("" if model.gpu == self.gpu.id else f" from {model.gpu}")
        return Price(int(np.ceil(duration)), Origin.LEARNED, min(width, _WIDEST), name, base.bound)


def _shares(signatures: Sequence[Signature], model: LearnedModel) -> Array:
    """Factor on a correction's logarithm for each signature."""
    measured = [
        not isinstance(signature, Gemm) or features.variant(signature) in model.variants for signature in signatures
    ]
    return np.where(measured, 1.0, _OTHER_LAYOUT)


def _share_of_short(burst_ns: Array, model: LearnedModel) -> Array:
    """Factor on a correction's logarithm by duration: 0 up to half of the shortest duration in the tables, then rising.

    A launch dominates shorter kernels, so what large ones deviate from the formula says nothing of them.
    """
    if model.kind.startswith(_BY_TENSOR_CORES) or any(source.name not in _SHORTEST_NS for source in model.sources):
        return np.ones_like(burst_ns)
    shortest = max(_SHORTEST_NS[source.name] for source in model.sources)
    share: Array = np.clip(2 * burst_ns / shortest - 1, 0.0, 1.0)
    return share


def _halves(product: Gemm) -> list[Gemm]:
    """Products of half the sides, of a quarter, and so on, as long as all sides are even."""
    halves = []
    while not (product.m % 2 or product.n % 2 or product.k % 2) and min(product.m, product.n, product.k):
        sides = {side: getattr(product, side) // 2 for side in ("m", "n", "k")}
        product = msgspec.structs.replace(product, **sides)
        halves.append(product)
    return halves


def _widened_uncertainty(width: float, signature: Signature, base: Price, model: LearnedModel) -> float:
    """The uncertainty for layouts, backends or operators without measurements: at least that of the formula."""
    measured = features.variant(signature) in model.variants and not _stood_in_for(signature, model.gpu)
    return width if measured else max(width, base.uncertainty)


def _stood_in_for(signature: Signature, gpu: str) -> bool:
    if not isinstance(signature, Attention) or signature.paged or gpu not in catalogue.ids(Gpu):
        return False
    return (catalogue.gpu(gpu).architecture, signature.backend) == _STANDS_IN


@functools.lru_cache(maxsize=256)
def _model(path: Path, version: tuple[int, int]) -> tuple[LearnedModel, Forest]:
    """A model and its trees as arrays, read once per version of the file.

    Raises:
        InputError: the file is not a model, or was fitted to other formulas than this presim has.
    """
    model = read(path)
    # a test checks the packaged models
    fits = path.parent == PACKAGED or agree_within_rounding(model.analytic, probe_ns(model.gpu))
    if model.features != features.KINDS[model.kind].features or not fits:
        raise InputError(f"{path} was fitted to other formulas than this presim has: make it again with presim fit")
    return model, Forest.of(model.thresholds, model.trees, model.limit)


def models_in(folder: Path) -> list[Path]:
    """Files of a folder with a model's name: class of work, GPU, ``.json``."""
    return sorted(path for path in folder.glob("*.*.json") if path.name.partition(".")[0] in features.KINDS)


def _files(folder: Path) -> Sequence[Path]:
    return _packaged() if folder == PACKAGED else models_in(folder)


@functools.cache
def _packaged() -> tuple[Path, ...]:
    """Packaged models, listed once, since they do not change."""
    return tuple(sorted(PACKAGED.glob("*.json")))


def _choose_files(gpu: Gpu, folders: Sequence[Path]) -> dict[str, Path]:
    """For each class of work the file of this GPU, else of the most closely related GPU that has one."""
    files = {path.name: path for folder in folders for path in _files(folder)}
    path_by_kind: dict[str, Path] = {}
    ranks: dict[str, tuple[int, float]] = {}
    for name, path in sorted(files.items()):
        kind, _, other = name.removesuffix(".json").partition(".")
        rank = _distance(gpu, other) if kind in features.KINDS and _as_limited(kind, gpu, other) else None
        if rank is not None and rank < ranks.get(kind, (99, 0.0)):
            path_by_kind[kind], ranks[kind] = path, rank
    return path_by_kind


def _as_limited(kind: str, gpu: Gpu, other_id: str) -> bool:
    """Whether power limits both GPUs or neither; otherwise the correction does not transfer."""
    if not kind.startswith(_BY_TENSOR_CORES) or other_id not in catalogue.ids(Gpu):
        return True
    return device_of(gpu).throttles == device_of(catalogue.gpu(other_id)).throttles


@functools.lru_cache(maxsize=4096)
def _distance(gpu: Gpu, other_id: str) -> tuple[int, float] | None:
    """-1 for the GPU itself, the difference of ridge points for a related GPU, None if no correction transfers."""
    if other_id == gpu.id:
        return -1, 0.0
    if other_id not in catalogue.ids(Gpu):
        return None
    other = catalogue.gpu(other_id)
    if other.architecture != _RELATIVE.get(gpu.architecture, gpu.architecture):
        return None
    return 0, abs(float(np.log(_ridge(gpu) / _ridge(other))))


def _ridge(gpu: Gpu) -> float:
    return (gpu.peak("float16") or gpu.peak("float32") or 1.0) / gpu.memory_bytes_per_s
