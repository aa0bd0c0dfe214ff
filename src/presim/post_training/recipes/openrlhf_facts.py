"""What OpenRLHF makes of its arguments: pools of its models, and how micro-batches are filled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim.errors import InputError
from presim.post_training.rl_job import ScoringPool, ScoringRole

_NODE_GPUS = 8
_PARAMETERS = 3  # DeepSpeed's stage that shards these
_MICRO_BATCHES = 1, 1  # of updates and of log-probabilities
_FORMER_MICRO_BATCHES = 4, 8  # under the former names


def with_pools(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with those that follow from OpenRLHF's arguments; unchanged if they are another framework's.

    Raises:
        InputError: there is no engine, or engines and trainers that share GPUs have different numbers of them.
    """
    if "engine_count" not in facts:
        return dict(facts)
    train_gpus = facts["train_nodes"] * facts["train_gpus_per_node"]
    rollout_gpus = facts["engine_count"] * facts["engine.tp"]
    shares_engines = facts["colocates_all"] and not facts["is_asynchronous"]
    if not rollout_gpus:
        raise InputError(
            "the recipe generates with the training model, step by step (vllm.num_engines is not set), which is not "
            "simulated; add vllm.num_engines"
        )
    if shares_engines and rollout_gpus != train_gpus:
        raise InputError(
            f"{facts['engine_count']} engines of {facts['engine.tp']} GPUs do not fill the {train_gpus} GPUs of the "
            "actor, which they share; change vllm.num_engines or vllm.tensor_parallel_size"
        )
    roles = _roles(facts)
    pools = () if facts["colocates_all"] else _scoring_pools(facts, roles)
    return {
        **facts,
        **_batches(facts),
        "is_colocated": shares_engines,
        "rollout_gpus": rollout_gpus,
        "staleness": facts["staleness"] if facts["is_asynchronous"] else 0.0,
        "scoring_pools": pools,
        "reward_model": "reward" in roles,
        "pool_gpus": (train_gpus, *(() if shares_engines else (rollout_gpus,)), *(pool.gpus for pool in pools)),
    }


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """What is simulated otherwise than OpenRLHF's arguments say."""
    stage = facts.get("zero_stage")
    if stage not in (1, 2):
        return []
    return [
        f"Stage {stage} of DeepSpeed's ZeRO is simulated as FSDP2 that keeps gathered parameters until the backward "
        "pass."
    ]


def gpus_per_node(pool_gpus: tuple[int, ...]) -> int:
    """Most GPUs of a node with which nodes of a kind hold all pools, each on whole nodes or on a part of one."""
    total = sum(pool_gpus)
    if total <= _NODE_GPUS:
        return total
    return max(
        size
        for size in range(1, _NODE_GPUS + 1)
        if total % size == 0 and all(gpus <= size or gpus % size == 0 for gpus in pool_gpus)
    )


def _roles(facts: Mapping[str, Any]) -> tuple[ScoringRole, ...]:
    """Models beside the actor. A program or a server takes the place of a reward model."""
    is_scored_apart = "reward_url" in facts or "agent" in facts
    presence: dict[ScoringRole, bool] = {
        "reference": bool(facts["reference"]),
        "critic": facts["algorithm"] == "ppo",
        "reward": "reward_path" in facts and not is_scored_apart,
    }
    return tuple(role for role, is_there in presence.items() if is_there)


def _scoring_pools(facts: Mapping[str, Any], roles: tuple[ScoringRole, ...]) -> tuple[ScoringPool, ...]:
    sizes = {role: facts[f"{role}_nodes"] * facts[f"{role}_gpus_per_node"] for role in roles}
    if facts["colocates_reference"]:
        sizes.pop("reference", None)
    if facts["colocates_critic"] and {"critic", "reward"} <= sizes.keys():
        shared = ScoringPool("critic", sizes.pop("critic"), ("critic", "reward"))
        del sizes["reward"]
        return (*(ScoringPool(role, gpus, (role,)) for role, gpus in sizes.items()), shared)
    return tuple(ScoringPool(role, gpus, (role,)) for role, gpus in sizes.items())


def _batches(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Micro-batches, offloads and the model, whichever of their names is used."""
    is_former = "former_model" in facts
    derived: dict[str, Any] = {
        "vllm_start": "llm" if is_former and "agent" not in facts else "async-llm",
        "dp_style": "fsdp2" if facts["zero_stage"] else "ddp",
        "reshard": facts["zero_stage"] == _PARAMETERS,
        "balance": facts["packs_tokens"],  # ranks get consecutive parts of a batch that is not dynamic
    }
    if is_former:
        derived["model"] = facts["former_model"]
    if facts["trainer_sleeps"]:
        derived |= {"offloads_parameters": True, "offloads_optimizer": True}
    if not facts["packs_tokens"]:
        names = "micro_sequences", "logprob_sequences"
        sizes = _FORMER_MICRO_BATCHES if is_former else _MICRO_BATCHES
        derived |= {name: facts.get(name, size) for name, size in zip(names, sizes)}
        derived |= {"micro_tokens": None, "logprob_tokens": None, "pads_to_longest": not facts["packs_samples"]}
    else:
        derived |= {"logprob_sequences": None, "logprob_tokens": facts.get("logprob_tokens", facts["micro_tokens"])}
    if "longest_response" not in facts:
        derived |= {"longest_response": 1024} if is_former else {}
    if not is_former and "longest_response" in facts and "longest_sequence" in facts:
        derived["longest_prompt"] = max(facts["longest_sequence"] - facts["longest_response"], 1)
    if not is_former:
        derived["longest_sequence"] = facts.get("longest_sequence", 2048)
    return derived
