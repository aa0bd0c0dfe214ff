"""Work of feed-forwards on one rank, and the communication that brings tokens to experts and back."""

from __future__ import annotations

import dataclasses

from presim.composition.models.decoder_layers import Dense, Experts, Layer
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.routed_experts import Routed
from presim.serving.steps.step_work import HALF, Reduce, Work, elementwise, product, stored_in
from presim.trace.signatures import Gemm, Softmax


def works(layer: Layer, hidden: int, plan: ServingPlan, tokens: int) -> list[Work]:
    """All feed-forwards of a layer with their communication."""
    mixtures = [part for part in layer.feed_forwards if isinstance(part, Experts)]
    steps: list[Work] = []
    for mixture in mixtures:
        steps += _experts(mixture, hidden, plan, tokens, stored_in(layer, plan, "experts"))
    for dense in layer.feed_forwards:
        if isinstance(dense, Dense):
            steps += _dense_works(
                dense, hidden, plan, tokens, stored_in(layer, plan, "shared" if dense.shared else "dense")
            )
    if not mixtures:
        return [*steps, Reduce(2 * tokens * hidden, "tp")]
    return [*steps, *_exchange(mixtures[0], hidden, plan, tokens)]


def _dense_works(dense: Dense, hidden: int, plan: ServingPlan, tokens: int, weights: str) -> list[Work]:
    """A feed-forward split over the ranks."""
    local = max(dense.width // plan.tp, 1)
    up = dense.matrices - 1
    return [
        *product(tokens, up * local, hidden, weights),
        elementwise(2 * up * tokens * local, 2 * tokens * local, "silu_and_mul" if up == 2 else "activation"),
        *product(tokens, hidden, local, weights),
    ]


def _experts(of: Experts, hidden: int, plan: ServingPlan, tokens: int, weights: str) -> list[Work]:
    """A layer of experts; tokens of all data-parallel ranks are spread evenly over the ranks' experts."""
    ranks = plan.tp * plan.dp
    logits = 4 * tokens * of.count
    spread = Routed(tokens * plan.dp, of.hidden, of.width, of.chosen, of.count, ranks, weights, of.matrices)
    cut = dataclasses.replace(spread, width=max(of.width // ranks, 1), ranks=1)
    return [
        Gemm(tokens, of.count, hidden, 1, HALF, layout="NT"),
        Softmax(logits, logits, tokens * of.count, "float32", operator="topk", row=of.count),
        spread if plan.ep else cut,
    ]


def _exchange(of: Experts, hidden: int, plan: ServingPlan, tokens: int) -> list[Work]:
    """Communication that brings tokens to the experts and back.

    vLLM gathers the tokens of all data-parallel ranks and scatters the sums (its `allgather_reducescatter`); with
    tensor parallelism the ranks of a group gather their parts again. With expert parallelism, SGLang and TensorRT-LLM
    send a token only to the ranks of its experts.
    """
    moved_bytes = 2 * tokens * hidden
    ranks = plan.tp * plan.dp
    if plan.dp == 1:
        return [Reduce(moved_bytes, "experts")]
    if plan.kernels == "vllm":
        gathered_bytes = moved_bytes * plan.dp
        return [
            Reduce(gathered_bytes, "experts", "all_gather"),
            Reduce(gathered_bytes, "experts", "reduce_scatter"),
            Reduce(moved_bytes, "tp", "all_gather"),
        ]
    if not plan.ep:
        return [Reduce(moved_bytes * plan.dp, "experts")]
    reached = ranks * (1 - (1 - 1 / ranks) ** of.chosen)
    sent = int(moved_bytes * reached)
    dispatched = sent if plan.of_experts == "bf16" else sent // 2
    return [Reduce(dispatched, "experts", "all_to_all"), Reduce(sent, "experts", "all_to_all")]
