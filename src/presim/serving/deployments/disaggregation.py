"""Deployments with prefill and decode on engines of their own, which may differ in tensor parallelism and in GPU."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.estimate import accepted_tokens, decoding, prefilling, transfer_ns
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import PricedEngine

_RATIOS = tuple(itertools.product((1, 2, 3, 4), (1, 2, 3, 4)))  # engines that prefill, and that decode
_SLACK = 0.9  # of what prefill engines can take: their queue needs some
_FLASH_ATTENTION = ("ampere", "ada", "hopper")  # architectures on which vLLM chooses this backend for plain attention


def apart(
    engines: Sequence[PricedEngine], batches: Sequence[int], prompt: int, output: int, *, cached: int, most_gpus: int
) -> Iterator[DeploymentPoint]:
    """Each pair of engines in several ratios, with up to ``most_gpus`` GPUs.

    ``prompt``, ``output``, ``cached``: tokens of a request, and of its prompt that the prefix cache has.
    """
    decodings = {id(engine): [decoding(engine, batch, prompt, output) for batch in batches] for engine in engines}
    prefillings = {id(engine): [prefilling(engine, batch, prompt, cached) for batch in batches] for engine in engines}
    for prefill, decode in _pairs(engines):
        ratios = [
            (prefills, decodes, gpus)
            for prefills, decodes in _RATIOS
            if (gpus := prefills * prefill.plan.gpus + decodes * decode.plan.gpus) <= most_gpus
        ]
        if not ratios:
            continue
        sent_ns, accepted, ranks = transfer_ns(prefill, decode, prompt), accepted_tokens(decode.plan), decode.plan.dp
        states = zip(batches, decodings[id(decode)], prefillings[id(prefill)])
        for batch, decoded, (first_ms, prefill_ns) in states:
            if decoded is None:
                break
            tpot_ms, tokens_per_s = decoded
            ttft_ms = first_ms + sent_ns / 1e6 + tpot_ms
            prefill_tokens_per_s = _SLACK * 1e9 / max(prefill_ns, sent_ns) * output * prefill.plan.dp
            for prefills, decodes, gpus in ratios:
                served = min(tokens_per_s * accepted * ranks * decodes, prefills * prefill_tokens_per_s)
                yield DeploymentPoint(
                    decode, batch * ranks, decodes, prefills, ttft_ms, tpot_ms / accepted, served, gpus, output, prefill
                )


def _pairs(engines: Sequence[PricedEngine]) -> Iterator[tuple[PricedEngine, PricedEngine]]:
    """Engines that prefill and engines that decode with the same checkpoint, cache and limits."""
    alike: dict[ServingPlan, list[PricedEngine]] = {}
    for engine in engines:
        plan = dataclasses.replace(engine.plan, tp=1, gpu_memory_utilization=1.0)  # SGLang's share follows from TP
        alike.setdefault(plan, []).append(engine)
    for group in alike.values():
        for prefill, decode in itertools.product(group, group):
            if exchange(prefill, decode):
                yield prefill, decode


def exchange(prefill: PricedEngine, decode: PricedEngine) -> bool:
    """Whether the cache of one engine can be sent to the other. SGLang's limits are taken to be vLLM's."""
    return refusal(prefill, decode) is None


def refusal(prefill: PricedEngine, decode: PricedEngine) -> str | None:
    """Why vLLM's NIXL connector does not start between two engines, and what to do; None if it does.

    It takes no pipeline stages where an engine decodes (vLLM 0.33, nixl/base_worker.py; stages that only prefill are of
    NixlPushConnector, which presim does not start), and recurrent layers only with equal tensor parallelism. It asks
    that both have the same attention backend, which the engine chooses by the GPU's architecture: one for all before
    Blackwell, where keys and values are plain and in 16 bits.
    https://docs.vllm.ai/en/stable/features/nixl_connector_compatibility/
    """
    stages = max(prefill.plan.pp, decode.plan.pp)
    if stages > 1:
        return (
            f"vLLM's NIXL connector takes no pipeline stages, and these engines have {stages}: leave out --pp and "
            "raise --tp, or let the engines prefill themselves, without --prefill-replicas"
        )
    plan, model = decode.plan, decode.model
    if model.recurrent and prefill.plan.tp != plan.tp:
        return (
            f"vLLM's NIXL connector sends the states of {model.name}'s recurrent layers only between engines of equal "
            f"tensor parallelism, not from tp {prefill.plan.tp} to tp {plan.tp}; leave out --prefill-tp"
        )
    names = {engine.cluster.gpu.architecture for engine in (prefill, decode)}
    has_sinks = plan.of_experts == "mxfp4"  # gpt-oss, whose attention has another backend before Hopper
    is_plain = plan.cache == "bf16" and model.latent is None and not has_sinks
    if len(names) == 1 or (plan.decides == "vllm" and is_plain and names <= {*_FLASH_ATTENTION}):
        return None
    return (
        f"vLLM's NIXL connector asks for the same attention kernels on both sides, and vLLM chooses others on "
        f"{prefill.cluster.gpu.name} than on {decode.cluster.gpu.name} for {model.name} with a KV cache in "
        f"{plan.cache}; choose GPUs of one architecture"
    )
