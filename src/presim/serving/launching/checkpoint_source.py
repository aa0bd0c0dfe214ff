"""Which checkpoint an engine loads for a plan: the user's path, a repository id, or another repository of its types."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from presim.composition.models.description import Model
from presim.serving.model_lookup import find, repositories
from presim.serving.serving_plan import Cache, ServingPlan
from presim.system.files import names_file, names_folder

_ONLINE = ("fp8",)  # types to which vLLM and SGLang quantise 16-bit weights while they load them


@dataclasses.dataclass(frozen=True)
class CheckpointSource:
    """What stands for the model in an engine's command."""

    name: str  # a repository id, or an absolute path
    is_path: bool
    quantization: str | None = None  # for the engine's ``--quantization``
    cache: Cache = "bf16"  # of keys and values, where the engine is not told otherwise
    problem: str = ""  # why a user has to name another checkpoint first; empty: it starts as it is


def checkpoint_source(word: str, model: Model, plan: ServingPlan) -> CheckpointSource:
    """The checkpoint of the model that ``word`` means, in the types of the plan."""
    path = Path(word)
    published = () if names_file(path) or names_folder(path) else repositories(word)
    is_path = not published and (names_file(path) or names_folder(path))
    folder = path if names_folder(path) else path.parent
    name = str(folder.resolve()) if is_path else next(iter(published), word)
    if plan.as_published or plan.of_experts == plan.weights == model.checkpoint.weights:
        return CheckpointSource(name, is_path, cache=model.checkpoint.cache)
    if plan.weights in _ONLINE and plan.of_experts == plan.weights and not model.checkpoint.method:
        return CheckpointSource(name, is_path, quantization=plan.weights)
    for repository in published:
        checkpoint = find(repository).checkpoint
        if checkpoint.weights == plan.weights and (checkpoint.experts or checkpoint.weights) == plan.of_experts:
            return CheckpointSource(repository, is_path=False)
    types = plan.weights if plan.weights == plan.of_experts else f"{plan.weights} and {plan.of_experts} experts"
    problem = f"no checkpoint of {model.name} with {types} weights is known here: set MODEL to one before you start"
    return CheckpointSource(name, is_path, problem=problem)
