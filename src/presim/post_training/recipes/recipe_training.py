"""What a recipe says of the training side: offloads, micro-batches, and the plan beside its degrees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def training_fields(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a request about offloads, degrees and micro-batches of the trainer."""
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
        fields |= {"pads": False, "pads_to_longest": True}
    if "device_batch" in facts:  # TRL pads the responses of a call of the engine to its longest
        fields |= {"micro_sequences": facts["device_batch"], "pads_to_longest": True}
    if facts.get("removes_padding") is False and fields.get("micro_sequences"):  # verl pads to the longest allowed
        longest = facts["longest_prompt"] + facts["longest_response"]
        fields |= {"pads": True, "micro_tokens": fields["micro_sequences"] * longest}
        fields["logprob_tokens"] = (fields.get("logprob_sequences") or fields["micro_sequences"]) * longest
    if facts.get("packs_tokens"):  # of slime
        fields["micro_sequences"] = None
    return fields


def plan_fields(facts: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe says of the training plan beside its degrees."""
    changed: dict[str, Any] = {}
    if fields.get("dp_style") == "zero1" and "megatron_recompute" in facts:  # verl's switch is of FSDP alone
        changed["recompute"] = facts["megatron_recompute"]
    if facts.get("checkpoints") is not None and fields.get("dp_style") == "fsdp2":
        changed["recompute"] = "full" if facts["checkpoints"] else "none"
    if facts.get("updates_on_host"):
        changed["offload_optimizer"] = "cpu"
    if facts.get("uses_deepep"):
        changed["expert_exchange"] = "deepep"
    if facts.get("virtual"):
        changed["vpp"] = facts["virtual"]
    if facts.get("skips_reference"):
        changed["reference"] = False
    rank = facts.get("lora_rank") or (facts.get("adapter_rank") if facts.get("trains_adapters") else 0)
    changed["lora_rank"] = rank or None
    if facts.get("merges_adapters") and rank:
        changed["merge_adapters"] = True
    return changed


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
