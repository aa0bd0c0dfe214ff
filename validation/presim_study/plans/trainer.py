"""The recipe ``torchtitan_trainer.py``: its options, in the order of its command line, and the models that it knows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim_study import dense_models
from presim_study.models import UNLIKE, plain_name, published_key
from presim_study.plan import Plan, Repeats, needs_installed, options

_RECIPE = "torchtitan_trainer.py"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of torchtitan's: one of a family's sizes, or shapes that the family's classes take."""

    family: str
    flavor: str | None = None
    shapes: str | None = None  # layers, hidden, ffn, heads, key and value heads, vocabulary


LLAMAS: Mapping[str, Model] = {  # as tables write them
    "llama38b": Model("llama3", "8B"),
    "llama318b": Model("llama3", "8B"),
    "llama370b": Model("llama3", "70B"),
    "llama3170b": Model("llama3", "70B"),
}


_DENSE = {**dense_models.LLAMAS, **dense_models.QWENS, **dense_models.QWEN3S}


@dataclasses.dataclass(frozen=True)
class Trainer:
    """How the recipe trains; None leaves an option out."""

    sequence: int
    batch: int  # samples of one replica in a step, or in each of the parts whose gradients are summed
    microbatch: int | None = None  # samples of a micro-batch of its pipeline
    accumulate: str | int | None = None
    global_batch: int | None = None
    replicas: int | None = None  # of what FSDP splits
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    context_parallel: int | None = None
    expert_parallel: int | None = None
    schedule: str | None = None  # the pipeline's, as PyTorch calls it
    layers_per_stage: int | None = None
    ends_count_as: str | None = None
    dtype: str | None = None
    lora: int | None = None
    checkpoint: str = "none"
    chunked_loss: bool = False
    compile: bool = False
    async_tensor_parallel: bool = False
    float8: str | None = None
    offload: bool = False
    traced: bool = False
    graphs: bool = False


def plan_trainer(model: Model, trainer: Trainer, cluster: Cluster, repeats: Repeats | None = None) -> Plan:
    """One rank of each pipeline stage runs the recipe."""
    needs_installed("torchtitan")
    replica = (trainer.tensor_parallel or 1) * (trainer.pipeline_parallel or 1) * (trainer.context_parallel or 1)
    if cluster.world_size % replica:
        raise CannotBuildError(f"{cluster.world_size} GPUs are no multiple of tp x pp x cp = {replica}")
    each = cluster.world_size // (trainer.pipeline_parallel or 1)
    return Plan(
        _RECIPE,
        options(**vars(model), **vars(trainer)),
        cluster,
        tuple(range(0, cluster.world_size, each)),
        repeats=repeats,
    )


def model_of(case: Case, known: Mapping[str, Model]) -> Model:
    """The case's model: by its name, or a dense one's shapes for Llama's classes.

    Raises:
        CannotBuildError: it is none of those that are known.
    """
    name = plain_name(case)
    if name in known:
        return known[name]
    alike = (each for each in known if name.startswith(each) and not name.startswith(UNLIKE))
    family = max(alike, key=len, default=None)
    if family is not None:  # "llama38binstruct"
        return known[family]
    shapes = _DENSE.get(published_key(case) or "")
    if shapes is None:
        raise CannotBuildError(f"the recipe has no model {case.text('model')!r}")
    return Model("llama3", shapes=",".join(map(str, shapes)))


def batch_of(case: Case) -> int:
    """Samples of one replica in a step, or in one of the parts whose gradients are summed."""
    said = re.search(r"\blocal[_ ]batch(?:[_ ]size)?[ =:]+(\d+)", case.text("other"), re.IGNORECASE)
    return int(said[1]) if said else case.count("micro_batch")
