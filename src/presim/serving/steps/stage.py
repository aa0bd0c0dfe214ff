"""Device work of one step on one rank, as signatures: what a pipeline stage's layers do for so many tokens."""

from __future__ import annotations

from collections import Counter

from presim.composition.models.decoder_layers import Layer
from presim.composition.models.description import Model, active
from presim.serving.serving_plan import ServingPlan, stage_ends
from presim.serving.steps import feed_forward_work, mixer_work
from presim.serving.steps.step_work import HALF, Reduce, Work, elementwise, norm, of_part, product, types_of_mixer
from presim.trace.signatures import Gemm, Index, Softmax


def layers_of(model: Model, plan: ServingPlan) -> list[tuple[Layer, int]]:
    """Kinds of layers of the slowest pipeline stage, with their numbers."""
    stages = [model.counts(first, end) for first, end in stage_ends(model.layers, plan.pp)]
    return max(stages, key=lambda stage: sum(count * active(layer) for layer, count in stage))


def block(layer: Layer, hidden: int, plan: ServingPlan, tokens: int) -> list[Work]:
    """What mixes the tokens of a layer, without attention kernels, states and communication."""
    if not layer.mixers:
        return []
    types = types_of_mixer(layer, plan)
    works: list[Work] = [norm(tokens, hidden)]
    for mixer in layer.mixers:
        works += mixer_work.projections(mixer, hidden, plan, tokens, types)
    return works


def layer_works(layer: Layer, hidden: int, plan: ServingPlan, tokens: int) -> list[Work]:
    """Work of a layer, except its attention kernel, or its states."""
    works = block(layer, hidden, plan, tokens)
    if works:
        works += [Reduce(2 * tokens * hidden, "tp")]
    for weight in of_part(layer.weights, "beside"):
        works += product(tokens, weight.shape[0], weight.shape[1], weight.stored if plan.as_published else "bf16")
    if layer.feed_forwards:
        works += [norm(tokens, hidden), *feed_forward_work.works(layer, hidden, plan, tokens)]
    return works


def head(model: Model, plan: ServingPlan, sequences: int) -> list[Work]:
    """Final norm, logits, and sampling."""
    local = -(-model.vocabulary // plan.tp)
    logits = 4 * sequences * model.vocabulary
    works: list[Work] = [
        norm(sequences, model.hidden),
        Gemm(sequences, local, model.hidden, 1, HALF, layout="NT"),
        Reduce(2 * sequences * model.vocabulary, "tp"),
    ]
    cast = elementwise(logits // 2, logits, "to float32")
    return [*works, cast, Softmax(logits, logits, logits // 4, "float32", operator="sample", row=model.vocabulary)]


def embedding(model: Model, plan: ServingPlan, tokens: int) -> list[Work]:
    """Embedding lookup of a step's tokens."""
    moved_bytes = 2 * tokens * model.hidden
    return [
        Index(moved_bytes, moved_bytes, tokens * model.hidden, HALF, operator="embedding"),
        Reduce(moved_bytes, "tp"),
    ]


def to_next_stage(model: Model, plan: ServingPlan, tokens: int) -> list[Work]:
    """Hidden states and residuals to the next stage: each rank sends its part, the next stage's ranks gather them.

    As vLLM's `GroupCoordinator.send_tensor_dict` with an all-gather group; both tensors are of 16 bits.
    """
    if plan.pp == 1:
        return []
    moved_bytes = 2 * 2 * tokens * model.hidden
    return [Reduce(moved_bytes // plan.tp, "stages", "send"), Reduce(moved_bytes, "tp", "all_gather")]


def stage(model: Model, plan: ServingPlan, tokens: int) -> list[tuple[Work, int]]:
    """Work of a pipeline stage except attention kernels, states and logits, each with its number."""
    works: Counter[Work] = Counter([*embedding(model, plan, tokens), *to_next_stage(model, plan, tokens)])
    for layer, count in layers_of(model, plan):
        for work in layer_works(layer, model.hidden, plan, tokens):
            works[work] += count
    return [(work, count) for work, count in works.items() if count]
