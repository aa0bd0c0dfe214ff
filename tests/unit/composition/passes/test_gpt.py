"""GPT-2 and GPT-3, split as Megatron-LM splits them: weights are stored by input, and the ends share a parameter."""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from presim import hardware
from presim.composition.compose import Composed, compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import take
from presim.composition.passes import untie
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.schema import Trace
from presim.trace.signatures import Attention, Collective, Gemm
from presim.trace.trace_invariants import check
from support.long_cases import marked
from support.models import llama

pytestmark = pytest.mark.torch_cuda
LAYERS, HIDDEN, HEADS, WORDS, TOKENS = 4, 256, 8, 4096, 512
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)
CONFIG = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": HIDDEN,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 2048,
    "vocab_size": WORDS,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "tie_word_embeddings": True,
}


@functools.cache
def gpt() -> OperatorGraph:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(CONFIG))
        return take(str(config))


@functools.cache
def made(tensor: int, *, sequence: bool = False) -> Composed:
    plan = Plan(sequence=TOKENS, tensor=tensor, sequence_parallel=sequence, data_style="ddp")
    job = compose(gpt(), plan, CLUSTER)
    check(job.traces[0])
    return job


def work(trace: Trace) -> list[object]:
    """The signatures of the last step."""
    chosen = trace.columns["signature"][trace.steps()[-1]]
    return [trace.signatures[index] for index in chosen[chosen >= 0].tolist()]


@pytest.mark.parametrize("tensor", [2, 8])
def test_products_have_a_rank_s_heads_and_hidden_units(tensor: int) -> None:
    products = Counter(
        tuple(sorted((one.m, one.n, one.k))) for one in work(made(tensor).traces[0]) if isinstance(one, Gemm)
    )
    whole = {"c_attn": (3 * HIDDEN // tensor, HIDDEN), "mlp": (4 * HIDDEN // tensor, HIDDEN)}
    expected = {
        **{tuple(sorted((TOKENS, *sizes))): 0 for sizes in (*whole.values(), (HIDDEN // tensor, HIDDEN))},
        tuple(sorted((TOKENS, HIDDEN, WORDS))): 0,
    }
    expected[tuple(sorted((TOKENS, *whole["c_attn"])))] += 3 * LAYERS
    expected[tuple(sorted((TOKENS, HIDDEN // tensor, HIDDEN)))] += 3 * LAYERS
    expected[tuple(sorted((TOKENS, *whole["mlp"])))] += 6 * LAYERS
    expected[tuple(sorted((TOKENS, HIDDEN, WORDS)))] += 3
    assert products == expected


@pytest.mark.parametrize("tensor", [2, 8])
def test_attention_has_a_rank_s_heads(tensor: int) -> None:
    heads = {(one.heads, one.kv_heads) for one in work(made(tensor).traces[0]) if isinstance(one, Attention)}
    assert heads == {(HEADS // tensor, HEADS // tensor)}


@pytest.mark.parametrize("tensor", [2, 8])
def test_activations_are_summed_twice_in_each_direction(tensor: int) -> None:
    trace = made(tensor).traces[0]
    summed = [
        one.bytes
        for one in work(trace)
        if isinstance(one, Collective)
        and trace.manifest.groups[one.group].name == "tensor"
        and one.kind == "all_reduce"
        and one.bytes > 1024
    ]
    assert summed == [TOKENS * HIDDEN * 2] * 4 * LAYERS


def test_the_sequence_is_split_between_the_parts() -> None:
    kinds = Counter(one.kind for one in work(made(8, sequence=True).traces[0]) if isinstance(one, Collective))
    assert kinds["reduce_scatter"] >= 4 * LAYERS
    assert kinds["all_gather"] >= 4 * LAYERS
    parameters = [made(tensor, sequence=tensor > 1).traces[0].manifest.model["parameters"] for tensor in (1, 8)]
    assert parameters[0] == parameters[1]


def test_words_that_do_not_divide_are_named() -> None:
    plan = Plan(sequence=TOKENS, tensor=3, vocabulary_parallel=True)
    with pytest.raises(InputError, match="tensor = 3 does not divide"):
        compose(gpt(), plan, hardware.choose_cluster(gpu="h100-sxm", world_size=24))


def pipeline(stages: int, **changes: Any) -> Composed:
    job = compose(gpt(), Plan(sequence=TOKENS, pipeline=stages, global_batch=8 * 8, **changes), CLUSTER)
    for trace in job.traces:
        check(trace)
    return job


def embedding_sums(trace: Trace) -> list[int]:
    """Bytes of all-reduces between the ends of the pipeline in the last step."""
    groups = trace.manifest.groups
    return [one.bytes for one in work(trace) if isinstance(one, Collective) and groups[one.group].name == "embedding"]


@pytest.mark.parametrize(
    ("style", "each"), [("zero1", 4), ("ddp", 2), ("fsdp2", 2 / 2)]
)  # fp32 gradients; whole ones; shards of the two ranks of a stage
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero-bubble"])
def test_ends_of_a_pipeline_sum_the_gradient_of_the_shared_embedding(style: str, each: float, schedule: str) -> None:
    first, *middle, last = pipeline(4, data_style=style, schedule=schedule).traces
    assert embedding_sums(first) == embedding_sums(last) == [WORDS * HIDDEN * each]
    assert not any(map(embedding_sums, middle))


def test_the_last_stage_has_a_copy_of_the_embedding() -> None:
    whole = gpt().parameter_count()
    traces = pipeline(4, data_style="ddp").traces
    assert sum(trace.manifest.model["parameters_local"] for trace in traces) == whole + WORDS * HIDDEN
    assert {trace.manifest.model["parameters"] for trace in traces} == {whole}


def test_products_are_those_of_one_stage() -> None:
    """A pipeline of two over eight micro-batches does what one stage does for each of them."""
    one = compose(gpt(), Plan(sequence=TOKENS, data_style="ddp"), CLUSTER).traces
    two = pipeline(2, data_style="ddp").traces
    flops = [
        sum(each.flops for trace in traces for each in work(trace) if isinstance(each, Gemm)) for traces in (one, two)
    ]
    assert flops[1] == flops[0] * 64 // 4


def test_one_rank_with_both_ends_is_refused() -> None:
    with pytest.raises(InputError, match="does not support with this schedule"):
        pipeline(2, schedule="dualpipev", virtual=2)


def test_a_model_without_ties_is_unchanged() -> None:
    untied = llama()
    assert untie.apply(untied) == untied
    assert untie.copies(untied) == []
    (copy,) = untie.copies(untie.apply(gpt()))
    assert (copy.name, copy.shape) == ("transformer.wte.weight (copy)", (WORDS, HIDDEN))


@pytest.mark.parametrize("model", marked(["vit-huge", "clip-vit-large"], ["vit-huge"]))
def test_encoders_of_images_are_split_by_heads(model: str) -> None:
    graph = take(model)
    traces = [
        compose(graph, Plan(sequence=64, tensor=tensor, data_style="ddp"), CLUSTER).traces[0] for tensor in (1, 4)
    ]
    heads = [{one.heads for one in work(trace) if isinstance(one, Attention)} for trace in traces]
    assert {one // 4 for one in heads[0]} == heads[1]
    flops = [sum(one.flops for one in work(trace) if isinstance(one, Gemm)) for trace in traces]
    assert flops[0] / 4 < flops[1] < flops[0] / 3.8  # patches and projections are whole


@pytest.mark.long
def test_two_sequences_are_not_split() -> None:
    with pytest.raises(InputError, match=r"has a sequence in each of encoder.* and decoder"):
        compose(take("t5-3b"), Plan(sequence=512, context=2), CLUSTER)
