"""Make a request of a recipe: fields of presim from the framework's facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from presim.composition.graph.take import named_models
from presim.errors import InputError
from presim.post_training.recipes.frameworks import FRAMEWORKS
from presim.post_training.recipes.key_table import Recipe
from presim.post_training.recipes.read_recipe import settings_of
from presim.post_training.rl_request import RlRequest
from presim.serving.model_lookup import names

_MOST_NAMED = 12  # keys in a sentence


@dataclasses.dataclass(frozen=True)
class FromRecipe:
    """What a recipe asks for."""

    fields: dict[str, Any]  # of `RlRequest`
    gpus_per_node: int | None
    world_size: int | None
    longest_prompt: int | None  # tokens; how long they are on average, no recipe says
    longest_response: int | None
    notes: tuple[str, ...]
    filters: bool = False  # drops prompts by their rewards; how many, no recipe says


def read_recipe(framework: str, path: str, overrides: Sequence[str], gpus: int | None = None) -> FromRecipe:
    """The request of a recipe; the model, too, if it is named. ``gpus``: of the cluster, if that is given.

    Raises:
        InputError: the recipe cannot be read, or asks for what cannot be simulated.
    """
    recipe = FRAMEWORKS[framework].recipe(*settings_of(path, overrides))
    facts = dict(recipe.facts)
    known_fields = {field.name for field in dataclasses.fields(RlRequest)}
    fields: dict[str, Any] = {name: value for name, value in facts.items() if name in known_fields}
    fields["engine"] = _engine(facts)
    fields |= {"model": _known(facts["model"])} if "model" in facts else {}
    fields |= _placement(facts)
    fields |= _batches(facts, fields, gpus)
    fields |= _training(facts)
    if facts.get("splits_batches") and facts.get("vllm_start") != "async-llm" and facts.get("is_colocated", True):
        fields["assignment"] = "consecutive"
    is_verl_sglang = "is_dynamic" in facts and fields["engine"].get("kernels") == "sglang"
    if is_verl_sglang and fields.get("assignment") == "consecutive" and facts.get("dp_style") == "zero1":
        fields["busy_wait"] = True  # sglang_rollout.py waits by `dist.barrier`, and Megatron's workers have NCCL alone
    filters = bool(facts.get("filters"))
    fields["round_prompts"] = _round_prompts(facts, fields) if filters else None
    notes = (f"Read as {framework}'s: {path}.", *_ignored(recipe))
    bounds = [facts[name] for name in ("longest_response", "longest_sequence") if name in facts]
    longest_response = min(bounds) if bounds else None
    return FromRecipe(fields, *_cluster(facts), facts.get("longest_prompt"), longest_response, notes, filters)


def _engine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the engine's plan; vLLM's ranks that share experts are those of tensor and data parallelism.

    vLLM schedules no step while another runs if Ray executes it: `supports_async_scheduling` of its executors,
    vllm/v1/executor/abstract.py.
    """
    engine = {name.removeprefix("engine."): facts[name] for name in facts if name.startswith("engine.")}
    if (parts := facts.get("attention_ranks", 1)) > 1:  # SGLang's ranks of attention are a part of the engine's
        engine |= {"tp": max(engine.get("tp", 1) // parts, 1), "dp": parts}
    ranks = facts.get("rollout_ep", 1)
    if ranks > 1:
        engine |= {"ep": True, "dp": engine.get("dp") or max(ranks // engine.get("tp", 1), 1)}
    if "device_batch" in facts and facts.get("is_colocated", True):  # trl/trainer/grpo_trainer.py
        steps = facts.get("generation_steps", facts["accumulation"])
        engine |= {"max_num_seqs": facts["device_batch"] * engine.get("tp", 1) * steps, "max_num_batched_tokens": 4096}
    if facts.get("runs_in_ray") and engine.get("tp", 1) * engine.get("pp", 1) > 1:
        engine.setdefault("async_scheduling", False)
    return engine


def _known(path: str) -> str:
    """The model of a path or an id, by the name that presim has for it, if any."""
    name = path.rstrip("/").rpartition("/")[2].lower()
    return name if name in (*names(), *named_models()) else path


def _cluster(facts: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """GPUs of a node, and of the whole job."""
    if "nodes" in facts:
        return facts["gpus_per_node"], facts["nodes"] * facts["gpus_per_node"]
    if "train_nodes" not in facts:
        return None, None
    per_node = facts["train_gpus_per_node"]
    train = facts["train_nodes"] * per_node
    if facts.get("is_colocated", True):
        return per_node, train
    rollout = _rollout_gpus(facts) or 0
    shared = per_node + facts.get("rollout_gpus_per_node", 0)  # verl's pools share nodes where these say so
    nodes = facts.get("rollout_nodes", 0)
    if "rollout_gpus" in facts and facts["train_nodes"] == 1:  # slime's are placed where there is room
        shared, nodes = per_node + rollout, 1
    return (shared if nodes == facts["train_nodes"] and shared <= 8 else per_node), train + rollout


def _round_prompts(facts: Mapping[str, Any], fields: Mapping[str, Any]) -> int | None:
    """Prompts that a filter gets at once; None: those of a step."""
    if "round_multiplier" in facts and "prompts" in fields:
        return round(float(facts["round_multiplier"]) * int(fields["prompts"]))
    prompts: int | None = facts.get("round_prompts")
    return prompts


def _rollout_gpus(facts: Mapping[str, Any]) -> int | None:
    if "rollout_gpus" in facts:
        return int(facts["rollout_gpus"])
    if "rollout_nodes" not in facts:
        return None
    per_node = facts.get("rollout_gpus_per_node", facts.get("gpus_per_node", facts.get("train_gpus_per_node", 8)))
    return int(facts["rollout_nodes"] * per_node)


def _placement(facts: Mapping[str, Any]) -> dict[str, Any]:
    if facts.get("is_colocated", True):
        return {"placement": "colocated", "rollout_gpus": None, "staleness": 0.0, "partial": False}
    is_asynchronous = facts.get("is_asynchronous", True)
    staleness = float(facts.get("staleness", 0.0)) if is_asynchronous else 0.0
    return {
        "placement": "separate",
        "rollout_gpus": _rollout_gpus(facts),
        "staleness": staleness,
        "partial": bool(facts.get("partial", False)) and staleness > 0,
    }


def _batches(facts: Mapping[str, Any], fields: Mapping[str, Any], gpus: int | None) -> dict[str, Any]:
    """Prompts of a step and of an update, also where a framework counts responses."""
    samples, prompts, mini_batch = fields.get("samples", 1), fields.get("prompts"), fields.get("mini_batch")
    if "device_batch" in facts:  # of TRL
        if gpus is None:
            raise InputError("TRL's batch is per GPU, and its recipe does not say how many there are: add --world-size")
        responses = facts["device_batch"] * gpus
        generated = responses * facts.get("generation_steps", facts["accumulation"])
        if generated % samples:
            raise InputError(
                f"{generated:,} responses that {gpus} GPUs generate at once do not divide into groups of {samples} "
                f"({generated} % {samples} = {generated % samples}); change num_generations or the number of GPUs"
            )
        mini_batch = responses * facts["accumulation"] // samples
        prompts = responses * facts.get("generation_steps", facts["accumulation"]) // samples
        if not mini_batch:
            raise InputError(
                f"an update of {responses * facts['accumulation']} responses on {gpus} GPUs has not {samples} to one "
                "prompt; raise per_device_train_batch_size"
            )
    elif prompts == 0 and mini_batch:  # verl's asynchronous trainer: prompts between two transfers of weights
        prompts = mini_batch * facts["required_updates"] * facts["sync_steps"]
    elif "mini_batch_responses" in facts:
        mini_batch = max(facts["mini_batch_responses"] // samples, 1)
    elif facts.get("updates") and prompts:  # of slime, whose batch of an update follows from their number
        mini_batch = max(prompts // facts["updates"], 1)
    spare = facts["begun_prompts"] - prompts if "begun_prompts" in facts and prompts else None
    if spare is not None and spare < 0:
        raise InputError(
            f"the recipe begins {facts['begun_prompts']:,} prompts and trains on {prompts:,} in a step; raise the first"
        )
    counts = {
        "spare_prompts": spare,
        "prompts": prompts,
        "mini_batch": min(mini_batch, prompts) if mini_batch and prompts else mini_batch,
    }
    return {name: count for name, count in counts.items() if count}


def _training(facts: Mapping[str, Any]) -> dict[str, Any]:
    names = ("parameters", "optimizer", "reference")
    moves_all = facts.get("offloads_all") and facts.get("is_colocated", True)
    offload = tuple(name for name in names if moves_all or facts.get(f"offloads_{name}"))
    fields: dict[str, Any] = {"offload": offload}
    if facts.get("dp_style") == "fsdp2":  # of NeMo RL's two trainers, the one without Megatron
        dtensor_fields = {
            name.removeprefix("dtensor."): value for name, value in facts.items() if name.startswith("dtensor.")
        }
        fields |= {**dtensor_fields, **({"pp": 1, "ep": 1} if dtensor_fields else {})}
    fields |= _micro_batches(facts)
    if facts.get("reference_in_reward"):
        fields["reference"] = True
    if "micro_batch" in facts and "micro_tokens" not in facts:
        fields["micro_tokens"] = facts["micro_batch"] * facts["longest_sequence"]
        fields["logprob_tokens"] = facts.get("logprob_batch", facts["micro_batch"]) * facts["longest_sequence"]
    if not facts.get("packs", True) and not facts.get("is_token_batch"):  # NeMo RL pads sequences to the longest
        fields |= {"micro_sequences": facts["micro_batch"], "pads": True}
        fields["logprob_sequences"] = facts.get("logprob_batch", facts["micro_batch"])
    if "device_batch" in facts and "longest_prompt" in facts:
        fields["micro_tokens"] = facts["device_batch"] * (facts["longest_prompt"] + facts["longest_response"])
    return fields


def _micro_batches(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of sequences in place of tokens where batches are not dynamic, and what Megatron does with packs."""
    fields: dict[str, Any] = {}
    is_dynamic = facts.get("is_dynamic", True)
    if "is_dynamic" in facts:  # of verl
        switches = {"micro_sequences": is_dynamic, "logprob_sequences": facts.get("is_logprob_dynamic", is_dynamic)}
        fields |= {name: None if is_on else facts.get(name) for name, is_on in switches.items()}
        tokens = {"micro_sequences": "micro_tokens", "logprob_sequences": "logprob_tokens"}
        fields |= {tokens[name]: None for name in switches if fields[name]}
    is_megatron = facts.get("dp_style") == "zero1"
    if facts.get("packs_for_all_ranks"):  # of NeMo RL
        context = facts.get("cp", 1)
        fields |= {name: facts[name] // context for name in ("micro_tokens", "logprob_tokens") if name in facts}
        fields |= {"pads": is_megatron and facts.get("pp", 1) > 1}
    if is_megatron and ("is_dynamic" in facts or facts.get("packs_for_all_ranks")):
        parts = {"norm": True, "rotary": facts["fuses_rotary"], "activation": facts["fuses_activation"]}
        fields["fusions"] = tuple(part for part, is_fused in parts.items() if is_fused)
        fields["logits"] = "verl-megatron" if "is_dynamic" in facts else "nemo-rl-megatron"
    return fields


def _ignored(recipe: Recipe) -> list[str]:
    if not recipe.ignored:
        return []
    named = ", ".join(recipe.ignored[:_MOST_NAMED])
    rest = f" and {len(recipe.ignored) - _MOST_NAMED} others" if len(recipe.ignored) > _MOST_NAMED else ""
    return [f"Keys of the recipe that are not understood, and left out: {named}{rest}."]
