"""What a framework's keys have to say of a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from presim.errors import InputError
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_request import RlRequest

_SAME = ("prompts", "samples", "tp", "pp", "ep", "cp", "dp_style", "recompute", "reference", "balance", "sleep_level")
_TOKENS = ("micro_tokens", "logprob_tokens")
_OFFLOADS = ("parameters", "optimizer", "reference")


def written_facts(framework: str, request: RlRequest, job: RlJob) -> Mapping[str, Any]:
    """Facts by the names that the framework's table of keys has.

    Raises:
        InputError: the framework has no such job.
    """
    if request.turns > 1 or request.reward_model:
        raise InputError("--turns and --reward-model are not written; leave out --write, or them")
    if request.placement == "hybrid" or request.scoring_pools:
        raise InputError(
            "hybrid pools and pools that score are not written; leave out --write, or place them otherwise"
        )
    gpus, gpus_per_node = job.placement.gpus, job.cluster.gpus_per_node
    request = _resolved(request, job)
    facts = _shared(request)
    writers = {"verl": _verl, "nemo-rl": _nemo_rl, "slime": _slime, "openrlhf": _openrlhf}
    if framework == "trl":
        return _trl(request, facts, gpus)
    return facts | writers[framework](request, facts, gpus, gpus_per_node)


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


def _shared(request: RlRequest) -> dict[str, Any]:
    facts: dict[str, Any] = {
        **{name: getattr(request, name) for name in (*_SAME, *_TOKENS)},
        **{f"engine.{name}": value for name, value in request.engine.items()},
        "is_colocated": request.placement == "colocated",
    }
    if request.keep < 1:
        round_prompts = request.round_prompts or request.prompts
        facts |= {"filters": True, "round_prompts": round_prompts, "round_multiplier": round_prompts / request.prompts}
    if request.lora_rank:
        facts |= {"lora_rank": request.lora_rank, "adapter_rank": request.lora_rank, "trains_adapters": True}
    if request.routing_replay:
        facts["routing_replay"] = True
    if request.offload_optimizer == "cpu":
        facts["updates_on_host"] = True
    return facts


def _updated_prompts(request: RlRequest) -> int:
    return request.mini_batch or request.prompts


def _rollout_gpus(request: RlRequest, gpus: int) -> int:
    return request.rollout_gpus or gpus // 2


def _ahead(request: RlRequest) -> dict[str, Any]:
    return {"staleness": request.staleness, "partial": request.partial} if request.staleness else {}


def _verl(request: RlRequest, facts: Mapping[str, Any], gpus: int, gpus_per_node: int) -> dict[str, Any]:
    rollout_gpus = 0 if facts["is_colocated"] else _rollout_gpus(request, gpus)
    keyed: dict[str, Any] = {
        "mini_batch": _updated_prompts(request),
        "algorithm": request.algorithm,
        "epochs": request.epochs,
    }
    keyed |= {"is_dynamic": not request.micro_sequences, "micro_sequences": request.micro_sequences}
    keyed |= {f"offloads_{name}": name in request.offload for name in _OFFLOADS}
    keyed |= _nodes("train", gpus - rollout_gpus, gpus_per_node) | _ahead(request)
    if request.dp_style == "zero1":  # whose blocks are recomputed by a key of Megatron's
        keyed |= {"megatron_recompute": request.recompute, "recompute": None}
    return keyed | (_nodes("rollout", rollout_gpus, gpus_per_node) if rollout_gpus else {})


def _nemo_rl(request: RlRequest, facts: Mapping[str, Any], gpus: int, gpus_per_node: int) -> dict[str, Any]:
    keyed: dict[str, Any] = {"mini_batch_responses": _updated_prompts(request) * request.samples}
    keyed |= {"is_asynchronous": request.staleness > 0, **_ahead(request)}
    keyed |= {"nodes": -(-gpus // gpus_per_node), "gpus_per_node": min(gpus, gpus_per_node)}
    keyed |= {name: facts[name] * facts["cp"] for name in _TOKENS}  # of all context-parallel ranks
    if request.algorithm == "ppo":
        if request.staleness:
            raise InputError("asynchronous PPO of NeMo RL is not written; leave out --staleness, or --write")
        keyed |= {"ppo.prompts": request.prompts, "ppo.samples": request.samples, "ppo.epochs": request.epochs}
        keyed |= {"prompts": None, "samples": None}
    if request.dp_style == "fsdp2":  # the trainer without Megatron has keys of its own
        names = ("tp", "cp", "recompute")
        keyed |= {f"dtensor.{name}": facts[name] for name in names} | dict.fromkeys(names)
    return keyed | ({} if facts["is_colocated"] else _nodes("rollout", _rollout_gpus(request, gpus), gpus_per_node))


def _slime(request: RlRequest, facts: Mapping[str, Any], gpus: int, gpus_per_node: int) -> dict[str, Any]:
    rollout_gpus = 0 if facts["is_colocated"] else _rollout_gpus(request, gpus)
    keyed: dict[str, Any] = {
        "mini_batch_responses": _updated_prompts(request) * request.samples,
        "algorithm": request.algorithm,
    }
    keyed |= {"packs_tokens": not request.micro_sequences, "micro_sequences": request.micro_sequences}
    keyed |= {"begun_prompts": request.prompts + request.spare_prompts if request.spare_prompts else None}
    keyed |= {"old_logprobs": request.old_logprobs, "rollout_gpus": rollout_gpus or None, **_ahead(request)}
    return keyed | _nodes("train", gpus - rollout_gpus, gpus_per_node)


def _openrlhf(request: RlRequest, facts: Mapping[str, Any], gpus: int, gpus_per_node: int) -> dict[str, Any]:
    if request.dp_style not in ("fsdp2", "ddp"):
        raise InputError(
            f"OpenRLHF trains with DeepSpeed's ZeRO, not {request.dp_style}; leave out --write, or use --dp-style fsdp2"
        )
    is_colocated, is_ahead = facts["is_colocated"], request.staleness > 0
    if not is_colocated and not is_ahead and request.algorithm == "ppo":
        raise InputError(
            "OpenRLHF has no critic on the actor's GPUs beside engines on others on-policy; add --staleness"
        )
    rollout_gpus = gpus if is_colocated else _rollout_gpus(request, gpus)
    train_gpus = gpus if is_colocated else gpus - rollout_gpus
    sharded_stage = 3 if request.reshard else 2
    keyed: dict[str, Any] = {
        "mini_batch_responses": _updated_prompts(request) * request.samples,
        "algorithm": request.algorithm,
        "epochs": request.epochs,
        "zero_stage": sharded_stage if request.dp_style == "fsdp2" else 0,
        "packs_samples": not request.pads_to_longest,
        "packs_tokens": not request.micro_sequences,
        "micro_sequences": request.micro_sequences,
        "logprob_sequences": request.logprob_sequences,
        "trainer_sleeps": {"parameters", "optimizer"} <= set(request.offload),
        "offloads_reference": "reference" in request.offload,
        "sleep_level": min(request.sleep_level, 1) if is_colocated else 0,
        "colocates_all": is_colocated or is_ahead,
        "colocates_reference": True,
        "is_asynchronous": is_ahead,
        "engine_count": rollout_gpus // facts["engine.tp"],
    }
    sizes = _nodes("train", train_gpus, gpus_per_node)
    of_reference = {name.replace("train", "reference"): size for name, size in sizes.items()}
    return keyed | sizes | of_reference | _ahead(request)


def _trl(request: RlRequest, facts: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    rollout_gpus = 0 if facts["is_colocated"] else _rollout_gpus(request, gpus)
    device_batch, ranks = request.micro_sequences or 1, gpus - rollout_gpus
    responses = _updated_prompts(request) * request.samples
    if responses % (device_batch * ranks):
        raise InputError(
            f"an update of {responses:,} responses does not divide into micro-batches of {device_batch} on {ranks} "
            f"GPUs ({responses} % {device_batch * ranks} = {responses % (device_batch * ranks)}), which TRL has; "
            "change --mini-batch or --micro-sequences"
        )
    accumulation = responses // (device_batch * ranks)
    keyed: dict[str, Any] = {
        "device_batch": device_batch,
        "accumulation": accumulation,
        "uses_vllm": True,
        "epochs": request.epochs,
    }
    keyed["generation_steps"] = accumulation * (request.prompts // _updated_prompts(request))
    names = ("samples", "reference", "is_colocated", "recompute", "sleep_level", "trains_adapters", "adapter_rank")
    return keyed | {name: value for name, value in facts.items() if name in names or name.startswith("engine.")}


def _nodes(pool: str, gpus: int, gpus_per_node: int) -> dict[str, int]:
    per_node = min(gpus, gpus_per_node)
    return {f"{pool}_nodes": gpus // per_node, f"{pool}_gpus_per_node": per_node}
