"""torchtitan's own trainer, compared with closed forms and its own log."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from presim.trace.schema import Category, Kind, Phase
from presim.trace.signatures import Attention, GroupedGemm, Kernel
from support.torchtitan import Training, train

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("torchtitan")]

PARAMETERS = 8_030_261_248
LAYERS, HIDDEN, VOCABULARY, TOKENS = 32, 4096, 128_256, 8192
OUTPUT = VOCABULARY * HIDDEN  # the output layer's matrix, and the embedding's
PRODUCTS = PARAMETERS - OUTPUT - (2 * LAYERS + 1) * HIDDEN  # all matrices: not the embedding, not the norms
RANKS = 8


@pytest.fixture(scope="module")
def llama() -> Training:
    return train("llama3_8b")


def test_the_model_is_the_one_that_the_log_names(llama: Training) -> None:
    assert llama.parameters == PARAMETERS
    assert llama.job.trace.manifest.model == {"parameters": PARAMETERS, "parameters_local": PARAMETERS // RANKS}
    assert llama.job.trace.manifest.batch == {"tokens": TOKENS, "samples": 1}


def test_the_logged_memory_equals_the_trace_s_reserved_memory(llama: Training) -> None:
    """At the end of the first step, when it was printed."""
    trace = llama.job.trace
    first = trace.steps()[0].stop
    kinds, values = trace.column("kind")[:first], trace.column("value")[:first].astype(np.int64)
    taken = np.where(kinds == Kind.SEGMENT_ALLOC, values, 0) - np.where(kinds == Kind.SEGMENT_FREE, values, 0)
    assert np.cumsum(taken).max() / 2**30 == pytest.approx(llama.reserved_GiB, abs=0.006)


def test_a_replayed_step_has_the_model_s_products(llama: Training) -> None:
    """Selective checkpointing recomputes every second product: attention's output and half of the FFN."""
    assert llama.job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * PRODUCTS
    assert llama.job.gemm_flops(Phase.BACKWARD) == 4 * TOKENS * PRODUCTS
    assert llama.job.gemm_flops(Phase.RECOMPUTE) == 2 * TOKENS * LAYERS * HIDDEN * (HIDDEN + 14336)


def test_flex_attention_is_causal_attention(llama: Training) -> None:
    found = [one for one in llama.job.signatures(llama.job.work()) if isinstance(one, Attention)]
    assert Counter(one.direction for one in found) == {"forward": LAYERS, "backward": LAYERS}
    shapes = {(one.heads, one.kv_heads, one.q_len, one.kv_len, one.head_dim, one.causal, one.backend) for one in found}
    assert shapes == {(32, 8, TOKENS, TOKENS, 128, True, "flex")}


def test_fsdp_gathers_parameters_twice_and_scatters_gradients_once(llama: Training) -> None:
    """In bf16 and fp32. The output layer and last norm once more, for the chunked loss."""
    job = llama.job
    assert job.collective_bytes("all_gather") == 2 * (2 * PARAMETERS + OUTPUT + HIDDEN)
    assert job.collective_bytes("reduce_scatter") == 4 * PARAMETERS
    shard = 4 * PARAMETERS / RANKS
    held = job.held_after_step()
    assert shard <= held[Category.PARAMETER] < 1.04 * shard
    assert shard <= held[Category.GRADIENT] < 1.04 * shard
    assert 2 * shard <= held[Category.OPTIMIZER_STATE] < 2.08 * shard


def test_no_kernel_is_known_by_its_name_only(llama: Training) -> None:
    assert not [one for one in llama.job.signatures(llama.job.work()) if isinstance(one, Kernel)]


@pytest.mark.long
def test_experts_exchange_every_token_three_times_and_are_grouped_products() -> None:
    """DeepSeek's small model: five layers of eight experts on four ranks, three experts per token."""
    tokens, top, width, layers = 8 * 2048, 3, 256, 5
    options = ("--training.disable_cuda_graphs", "--validator.freq", "1000")
    job = train(
        "deepseek_v3_debugmodel", *options, "--parallelism.expert_parallel_degree", "4", module="deepseek_v3", steps=2
    ).job
    exchanged = [one.bytes for one in job.collectives(Phase.FORWARD) if one.kind == "all_to_all" and one.bytes > 1024]
    assert exchanged == [2 * tokens * top * width] * (2 * layers)  # to the experts and back
    grouped = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, GroupedGemm)]
    assert {(one.groups, one.m) for one in grouped} == {(2, tokens * top)}  # balanced: as many come as go
    assert len(grouped) == 3 * layers
