"""Write a job in the keys of a framework: those settings that it reads back as the same job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from presim.errors import InputError
from presim.post_training.recipes.frameworks import FRAMEWORKS
from presim.post_training.recipes.key_table import Key
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_request import RlRequest

WRITTEN = ("verl", "nemo-rl")
# Words of keys whose values presim calls otherwise.
_WORDS = (True, False, "fsdp2", "megatron", "vllm", "sglang", "grpo", "gae", "rloo", "reinforce_plus_plus", 0.01, 0.0)
_SAME = ("prompts", "samples", "tp", "pp", "ep", "cp", "dp_style", "recompute", "reference")
_TOKENS = ("micro_tokens", "logprob_tokens")


def check(framework: str) -> None:
    """Raise InputError if no jobs are written for a framework."""
    if framework not in WRITTEN:
        raise InputError(f"placements are written for {' and '.join(WRITTEN)}, not {framework!r}; choose one of them")


def settings_for(framework: str, request: RlRequest, job: RlJob) -> list[str]:
    """``key=value`` for each of the framework's keys that the job sets, in the order of its table.

    Raises:
        InputError: the framework is not written, or has no words for the job.
    """
    check(framework)
    if request.turns > 1 or request.reward_model:
        raise InputError("--turns and --reward-model are not written; leave out --write, or them")
    facts = _facts(framework, _resolved(request, job), job.placement.gpus, job.cluster.gpus_per_node)
    settings: dict[str, str] = {}  # by field: of several keys for one, the first
    for name, key in FRAMEWORKS[framework].keys.items():
        if facts.get(key.field) is not None and key.field not in settings:
            settings[key.field] = f"{name}={_word(framework, name, key, facts[key.field])}"
    return list(settings.values())


def _resolved(request: RlRequest, job: RlJob) -> RlRequest:
    """The request with what was chosen in place of options."""
    trainer, plan = job.trainer, job.engine.plan
    context = trainer.plan.context
    engine = {**request.engine, "tp": plan.tp, "gpu_memory_utilization": plan.gpu_memory_utilization}
    return dataclasses.replace(
        request,
        cp=context,
        micro_tokens=trainer.update_tokens // context,
        logprob_tokens=trainer.logprob_tokens // context,
        reference=trainer.has_reference,
        engine={**engine, "kernels": plan.kernels},
    )


def _facts(framework: str, request: RlRequest, gpus: int, gpus_per_node: int) -> Mapping[str, Any]:
    """What the framework's keys have to say."""
    is_colocated = request.placement == "colocated"
    rollout_gpus = request.rollout_gpus or gpus // 2
    facts: dict[str, Any] = {
        **{name: getattr(request, name) for name in (*_SAME, *_TOKENS)},
        **{f"engine.{name}": value for name, value in request.engine.items()},
        "is_colocated": is_colocated,
    }
    if request.keep < 1:
        round_prompts = request.round_prompts or request.prompts
        facts |= {"filters": True, "round_prompts": round_prompts, "round_multiplier": round_prompts / request.prompts}
    updated_prompts = request.mini_batch or request.prompts
    if framework == "verl":
        facts |= {"mini_batch": updated_prompts, "algorithm": request.algorithm, "is_dynamic": True}
        facts |= {f"offloads_{name}": name in request.offload for name in ("parameters", "optimizer", "reference")}
        facts |= _nodes("train", gpus if is_colocated else gpus - rollout_gpus, gpus_per_node)
    else:
        facts |= {"mini_batch_responses": updated_prompts * request.samples, "is_asynchronous": request.staleness > 0}
        facts |= {"nodes": -(-gpus // gpus_per_node), "gpus_per_node": min(gpus, gpus_per_node)}
        facts |= {name: facts[name] * facts["cp"] for name in _TOKENS}  # of all context-parallel ranks
        if request.dp_style == "fsdp2":  # the trainer without Megatron has keys of its own
            facts |= {f"dtensor.{name}": facts.pop(name) for name in ("tp", "cp", "recompute")}
    if not is_colocated:
        facts |= _nodes("rollout", rollout_gpus, gpus_per_node)
        facts |= {"staleness": request.staleness, "partial": request.partial} if request.staleness else {}
    return facts


def _nodes(pool: str, gpus: int, gpus_per_node: int) -> dict[str, int]:
    per_node = min(gpus, gpus_per_node)
    return {f"{pool}_nodes": gpus // per_node, f"{pool}_gpus_per_node": per_node}


def _word(framework: str, name: str, key: Key, value: Any) -> str:
    """The first word that the framework's key reads as the value."""
    for word in (value, *_WORDS):
        try:
            if key.read(word) == value:
                return f"{word:g}" if isinstance(word, float) else str(word)
        except (TypeError, ValueError, KeyError):
            continue
    raise InputError(f"{framework} has no word for {name} of {value!r}; leave out --write, or choose another")
