"""What AReaL makes of its backends: degrees and GPUs of both sides, and how micro-batches are filled."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from presim.errors import InputError
from presim.system.files import shortened

_ENGINES = ("sglang", "vllm")
_STYLES = {"fsdp": "fsdp2", "archon": "fsdp2", "megatron": "zero1"}
_DEGREE = re.compile(r"([dtpce])(\d+)")
_DEGREES = re.compile(r"(?:[dtpce]\d+)+")


@dataclasses.dataclass(frozen=True)
class Allocation:
    """A backend with its degrees by letter: data, tensor, pipeline, context and expert parallelism."""

    backend: str
    degrees: Mapping[str, int]

    @property
    def gpus(self) -> int:
        """All GPUs: experts share those of the other degrees."""
        return math.prod(self.degrees.get(letter, 1) for letter in "dtpc")


def allocation(text: Any) -> Allocation:
    """A backend such as ``fsdp:d4t2``, ``sglang:d8`` or ``megatron:(attn:d4p4t2|ffn:d2p4e4)``.

    Raises:
        InputError: it is none of these.
    """
    backend, _, degrees = str(text).replace(".", ":", 1).partition(":")
    attention, _, experts = degrees.strip("()").partition("|")
    parts = [part.rpartition(":")[2] for part in (attention, experts) if part]
    if backend not in (*_ENGINES, *_STYLES) or not parts or not all(map(_DEGREES.fullmatch, parts)):
        raise InputError(
            f"{shortened(str(text))!r} is no backend with its degrees; write it as fsdp:d4t2, megatron:d2p2t2, "
            "sglang:d4 or vllm:d4t2"
        )
    degrees_of_part = [{letter: int(degree) for letter, degree in _DEGREE.findall(part)} for part in parts]
    if any(not degree for part in degrees_of_part for degree in part.values()):
        raise InputError(f"{shortened(str(text))!r} has a degree of 0; use 1 or more")
    return Allocation(backend, degrees_of_part[0] | {"e": degrees_of_part[-1].get("e", 1)})


def with_backends(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with those that follow from AReaL's backends; unchanged if they are another framework's.

    Raises:
        InputError: a side has no backend, or their GPUs are not those of the cluster.
    """
    if "cluster_nodes" not in facts:
        return dict(facts)
    facts = {**facts, **_former(facts)}
    for side in ("actor", "rollout"):
        if f"{side}_backend" not in facts:
            raise InputError(f"the recipe does not say on which GPUs its {side} is; add {side}.backend, e.g. d4")
    actor, rollout = facts["actor_backend"], facts["rollout_backend"]
    if actor.backend not in _STYLES or rollout.backend not in _ENGINES:
        raise InputError(
            f"actor.backend is {actor.backend} and rollout.backend {rollout.backend}; the first is one of "
            f"{', '.join(_STYLES)}, the second of {', '.join(_ENGINES)}"
        )
    is_colocated = bool(facts.get("is_colocated", False))
    pools = (actor.gpus,) if is_colocated else (actor.gpus, rollout.gpus)
    _check_gpus(facts, sum(pools))
    engine = {name: value for name, value in facts.items() if name.startswith(f"{rollout.backend}.")}
    return {
        **facts,
        **{f"engine.{name.partition('.')[2]}": value for name, value in engine.items()},
        **_trainer(facts, actor),
        "engine.kernels": rollout.backend,
        "engine.tp": rollout.degrees.get("t", 1),
        "engine.pp": rollout.degrees.get("p", 1),
        "vllm_start": "server",
        "is_colocated": is_colocated,
        "rollout_gpus": rollout.gpus,
        "partial": True,  # new weights interrupt generation, which goes on with them
        "pool_gpus": pools,
    }


def _former(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Backends of the one string that recipes had before: ``sglang:d4p1t1+fsdp:d4p1t1``."""
    text = facts.get("allocation_mode")
    if text is None or "rollout_backend" in facts:
        return {}
    rollout, plus, actor = str(text).partition("+")
    if not plus:
        raise InputError(f"allocation_mode={shortened(str(text))} does not name both sides; write it as sglang:d4+d4")
    actor = actor if ":" in actor else f"fsdp:{actor}"
    return {"rollout_backend": allocation(rollout), "actor_backend": allocation(actor)}


def _check_gpus(facts: Mapping[str, Any], gpus: int) -> None:
    available = facts["cluster_nodes"] * facts["cluster_gpus_per_node"]
    if gpus > available:
        raise InputError(
            f"the backends take {gpus} GPUs, and {facts['cluster_nodes']} nodes of {facts['cluster_gpus_per_node']} "
            f"have {available}; raise cluster.n_nodes"
        )


def _trainer(facts: Mapping[str, Any], actor: Allocation) -> dict[str, Any]:
    """Degrees of the trainer, and its packs, which all ranks of a sequence share."""
    context = actor.degrees.get("c", 1)
    trainer: dict[str, Any] = {
        "dp_style": _STYLES[actor.backend],
        "tp": actor.degrees.get("t", 1),
        "pp": actor.degrees.get("p", 1),
        "ep": actor.degrees["e"],
        "cp": context,
        "reference": facts["penalises_divergence"] and "reference_backend" in facts,
        "old_logprobs": facts["recomputes_logprobs"] or facts["has_decoupled_loss"],
    }
    if "pack_tokens" in facts:
        trainer["micro_tokens"] = facts["pack_tokens"] // context
        trainer["logprob_tokens"] = facts["pack_tokens"] // context
    if "critic.model" in facts:
        trainer["algorithm"] = "ppo"
    return trainer
