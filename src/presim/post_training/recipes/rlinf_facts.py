"""What RLinf makes of its components' GPUs: pools of both sides, which are the same or apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from presim.errors import InputError
from presim.post_training.recipes.openrlhf_facts import gpus_per_node
from presim.system.files import shortened

_PIPELINE = "RLinf trains on responses while others are generated; it is simulated as training after the rollout."
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def with_components(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with those that follow from the placement of RLinf's components; unchanged if there is none.

    Raises:
        InputError: the placement does not say where a side is, or pools overlap in part.
    """
    if "components" not in facts:
        return dict(facts)
    total = facts["nodes"] * facts["gpus_per_node"]
    components = {
        name.strip(): _gpus(str(gpus), total)
        for names, gpus in facts["components"].items()
        for name in str(names).split(",")
    }
    for name in ("actor", "rollout"):
        if name not in components:
            raise InputError(f"cluster.component_placement does not say where the {name} is; add {name}: all")
    actor, rollout = components["actor"], components["rollout"]
    if actor == rollout:
        return {**facts, **_batch(facts), "is_colocated": True, "pool_gpus": (len(actor),)}
    if actor & rollout:
        raise InputError(
            f"actor and rollout share {len(actor & rollout)} of {len(actor | rollout)} GPUs; presim simulates the same "
            "GPUs for both, or none in common"
        )
    inference = len(components.get("inference", frozenset()) - actor - rollout)
    pools = (len(actor) + inference, len(rollout))
    derived: dict[str, Any] = {"is_colocated": False, "rollout_gpus": len(rollout), "pool_gpus": pools}
    derived["inference_gpus"] = inference
    if gpus_per_node(pools) < min(facts["gpus_per_node"], min(pools)):
        raise InputError(
            f"pools of {pools[0]} and {pools[1]} GPUs do not fill nodes of {facts['gpus_per_node']}; change "
            "cluster.component_placement"
        )
    return {**facts, **_batch(facts), **derived}


def pipeline_sentences(facts: Mapping[str, Any]) -> list[str]:
    """What is simulated otherwise than RLinf does it."""
    if "components" not in facts or facts["is_colocated"]:
        return []
    sentences = [] if facts.get("staleness") else [_PIPELINE]
    if facts["inference_gpus"]:
        sentences.append(f"The {facts['inference_gpus']} GPUs of the inference component are simulated as the actor's.")
    return sentences


def _gpus(text: str, total: int) -> frozenset[int]:
    """GPUs such as ``all``, ``0-15`` or ``0-3,8``; processes behind a colon are left out."""
    if text == "all":
        return frozenset(range(total))
    gpus: set[int] = set()
    for part in text.partition(":")[0].split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(
                f"cluster.component_placement has {shortened(repr(text))}, which is no range of GPUs; write it as all, "
                "0-15 or 0-3,8"
            )
        gpus |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    if max(gpus) >= total:
        raise InputError(
            f"cluster.component_placement has GPU {max(gpus)}, and the cluster {total}; raise cluster.num_nodes"
        )
    return frozenset(gpus)


def _batch(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Engines get parts of a batch prompt by prompt; packs are of tokens where batches are dynamic."""
    tokens = {} if facts["packs_tokens"] else {"micro_tokens": None}
    return {**tokens, "splits_batches": True}
