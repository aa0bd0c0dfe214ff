"""Where no plan of a space holds the model: by how much the nearest misses, and what would hold it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

from presim.composition.models.description import Model
from presim.errors import PresimError
from presim.hardware import Gpu, catalogue
from presim.serving import weight_types
from presim.serving.deployments.deployment_search import Space, is_of_checkpoint, plan_of
from presim.serving.serving_plan import ServingPlan, Weights
from presim.serving.steps.engine_memory import room
from presim.units import GIB

_SIZES = (1, 2, 4, 8)
FEWER_BITS: tuple[Weights, ...] = ("fp8", "fp4", "int4")


@dataclasses.dataclass(frozen=True)
class UnfitPlan:
    """A plan on a GPU, and what each GPU lacks."""

    plan: ServingPlan
    gpu: Gpu
    needed_bytes: int  # weights, activations, what the engine keeps, and the cache of the longest request
    missing_bytes: int  # beyond what the engine may use; at most 0: it fits

    @property
    def gpus(self) -> int:
        """How many GPUs the plan takes."""
        return self.plan.gpus

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.gpus} x {self.gpu.id} as {self.plan.text}"


@dataclasses.dataclass(frozen=True)
class Misfit:
    """No plan holds the model and one request."""

    nearest: UnfitPlan
    sentence: str
    remedies: tuple[str, ...]


def misfit(model: Model, space: Space, longest: int) -> Misfit | None:
    """What is missing for a request of ``longest`` tokens; None where a plan has room: the reason is another."""
    shapes = [shape for shape in itertools.product(space.tps, space.pps) if shape[0] * shape[1] <= space.most_gpus]
    layouts = list(_layouts(model, space, longest, map(catalogue.gpu, space.gpus), shapes, space.weights))
    if not layouts or any(layout.missing_bytes <= 0 for layout in layouts):
        return None
    nearest = min(layouts, key=lambda layout: (layout.missing_bytes, layout.gpus))
    sentence = (
        f"No plan holds {model.name} and a request of {longest:,} tokens; the nearest: {nearest.text} needs "
        f"{nearest.needed_bytes / GIB:.1f} GiB on each GPU, {nearest.missing_bytes / GIB:.1f} more than the "
        "engine may use."
    )
    return Misfit(nearest, sentence, tuple(_remedies(model, space, longest, shapes)))


def _layouts(
    model: Model,
    space: Space,
    longest: int,
    gpus: Iterable[Gpu],
    shapes: Iterable[tuple[int, int]],
    weights: Iterable[Weights | None],
) -> Iterator[UnfitPlan]:
    """Plans that the engine would start, were there memory."""
    words = itertools.product(tuple(gpus), tuple(shapes), tuple(weights), space.caches, space.engines)
    for gpu, (tp, pp), kind, cache, release in words:
        if kind is not None and kind != "int4" and gpu.peak(kind) is None:
            continue
        if kind is not None and {kind, None} <= {*space.weights} and is_of_checkpoint(model, kind):
            continue
        degrees = ServingPlan(tp=tp, pp=pp, cache=cache, max_num_batched_tokens=min(space.budgets))
        try:
            plan = plan_of(degrees, release, model, gpu, space, longest, kind)
            plan.check(model)
            weight_types.check(model, plan, gpu)
            needed_bytes, missing_bytes = room(model, plan, gpu, longest)
        except PresimError:
            continue
        yield UnfitPlan(plan, gpu, needed_bytes, missing_bytes)


def _remedies(model: Model, space: Space, longest: int, shapes: list[tuple[int, int]]) -> Iterator[str]:
    """Sentences: more of the same GPUs, weights of fewer bits, a GPU with more memory."""
    asked_gpus = [catalogue.gpu(name) for name in space.gpus]
    larger_shapes = [shape for shape in itertools.product(_SIZES, _SIZES) if shape[0] * shape[1] > space.most_gpus]
    larger = _fitting(_layouts(model, space, longest, asked_gpus, larger_shapes, space.weights))
    if larger is not None:
        yield f"More GPUs: --max-gpus {larger.gpus} allows {larger.text}, which has room."
    fewer = _fitting(
        _layouts(model, space, longest, asked_gpus, shapes, [kind for kind in FEWER_BITS if kind not in space.weights])
    )
    if fewer is not None:
        yield f"Fewer bits: a checkpoint for --weights {fewer.plan.weights} allows {fewer.text}, which has room."
    most_bytes = max(gpu.memory_bytes for gpu in asked_gpus)
    larger_gpus = [gpu for gpu in catalogue.gpus() if gpu.vendor == "nvidia" and gpu.memory_bytes > most_bytes]
    other = _fitting(_layouts(model, space, longest, larger_gpus, shapes, space.weights))
    if other is not None:
        yield f"Another GPU: --gpu {other.gpu.id} allows {other.text}, which has room."


def _fitting(layouts: Iterable[UnfitPlan]) -> UnfitPlan | None:
    """The layout with room that takes the fewest GPUs, of the least memory."""
    fitting = (layout for layout in layouts if layout.missing_bytes <= 0)
    return min(fitting, key=lambda layout: (layout.gpus, layout.gpu.memory_bytes, layout.plan.pp), default=None)
