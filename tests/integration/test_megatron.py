"""Megatron-core with its own and Transformer Engine's layers: each parallelism compared with its closed form."""

from __future__ import annotations

from collections import Counter

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Attention, Kernel
from support.captured import Job, run

LAYERS, HIDDEN, HEADS, VOCABULARY, TOKENS = 4, 512, 8, 51200, 2048
MATRICES = LAYERS * 12 * HIDDEN**2
OUTPUT = VOCABULARY * HIDDEN
BIASES = LAYERS * (3 + 1 + 4 + 1) * HIDDEN
PARAMETERS = MATRICES + 2 * OUTPUT + BIASES + (2 * LAYERS + 1) * 2 * HIDDEN
SCORES = LAYERS * 2 * 2 * TOKENS**2 * HIDDEN  # both products of attention that Megatron itself does not fuse
ACTIVATION = 2 * TOKENS * HIDDEN  # bytes of bf16
RANKS = 8

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("megatron.core")]
with_transformer_engine = pytest.mark.needs("transformer_engine")


def gpt(*options: str, rank: int = 0) -> Job:
    return run("megatron_gpt.py", "--model", "tiny", *options, world_size=RANKS, rank=rank, steps=2)


def test_a_data_parallel_step_has_the_model_s_products_and_gradients() -> None:
    job = gpt()
    assert job.trace.manifest.model["parameters"] == PARAMETERS
    assert job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * (MATRICES + OUTPUT) + SCORES
    assert job.gemm_flops(Phase.BACKWARD) == 2 * job.gemm_flops(Phase.FORWARD)
    assert max(one.bytes for one in job.collectives() if one.kind == "all_reduce") == 4 * PARAMETERS


def test_tensor_parallelism_shares_products_and_sums_activations() -> None:
    """Two all-reduces per layer, forward and backward, and those of the embedding and output layer."""
    job = gpt("--tensor-parallel", "2")
    assert job.gemm_flops(Phase.FORWARD) == (2 * TOKENS * (MATRICES + OUTPUT) + SCORES) // 2
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        whole = [one for one in job.collectives(phase) if one.kind == "all_reduce" and one.bytes == ACTIVATION]
        assert len(whole) == 2 * LAYERS + 1


def test_the_distributed_optimizer_scatters_gradients_and_gathers_parameters() -> None:
    job = gpt("--distributed-optimizer", "--recompute", "full")
    assert job.collective_bytes("reduce_scatter") == 4 * PARAMETERS
    assert job.collective_bytes("all_gather") == 2 * PARAMETERS
    moments = job.held_after_step()[Category.OPTIMIZER_STATE]
    assert 2 * 4 * PARAMETERS / RANKS <= moments < 1.05 * 2 * 4 * PARAMETERS / RANKS


def test_full_recomputation_repeats_the_layers_forward() -> None:
    job = gpt("--distributed-optimizer", "--recompute", "full")
    assert job.gemm_flops(Phase.RECOMPUTE) == 2 * TOKENS * MATRICES + SCORES


def test_selective_recomputation_repeats_attention_s_scores_alone() -> None:
    job = gpt("--recompute", "selective")
    assert job.gemm_flops(Phase.RECOMPUTE) == SCORES
    assert job.gemm_flops(Phase.BACKWARD) == 2 * job.gemm_flops(Phase.FORWARD)


def test_layers_as_cuda_graphs_do_the_same_work_with_less_host_time() -> None:
    """After the first step each layer's forward and backward are graphs; the step has all its products."""
    plain, graphed = gpt(), gpt("--cuda-graphs")
    assert graphed.gemm_flops() == plain.gemm_flops()
    from_graphs = graphed.trace.column("value")[graphed.work()] == 1
    assert from_graphs.mean() > 0.3  # the optimizer, the embedding and the loss are launched by themselves
    assert not plain.trace.column("value")[plain.work()].any()


@pytest.mark.parametrize("rank", [0, 4])
def test_a_pipeline_stage_has_its_half_of_the_layers(rank: int) -> None:
    """Interleaved stages send an activation per chunk and micro-batch; each has half of the layers."""
    micro_batches, chunks = 4, 2
    job = gpt("--pipeline-parallel", "2", "--virtual-pipeline", "2", "--micro-batches", str(micro_batches), rank=rank)
    output = OUTPUT if rank else 0  # the last stage's
    norms = 2 * HIDDEN if rank else 0
    assert job.trace.manifest.model["parameters"] == (PARAMETERS - 2 * OUTPUT - 2 * HIDDEN) // 2 + OUTPUT + norms
    assert job.trace.manifest.batch["tokens"] == micro_batches * TOKENS
    assert job.result.throughput.tokens_per_s == pytest.approx(
        micro_batches * TOKENS * RANKS // 2 / job.result.step_time_s
    )
    assert job.result.mfu
    assert job.gemm_flops() == 3 * micro_batches * (2 * TOKENS * (MATRICES // 2 + output) + SCORES // 2)
    moved = sum(one.bytes for one in job.collectives() if one.kind in ("send", "recv", "send_recv"))
    # Of 2 * chunks boundaries between this stage's chunks and the others', the model's two ends are none. Forward
    # and backward each cross one; a launch that sends and receives counts what it sends.
    boundaries = 2 * chunks - 1
    assert ACTIVATION * micro_batches * boundaries <= moved <= 2 * ACTIVATION * micro_batches * boundaries


@with_transformer_engine  # the router of Megatron-core 0.16.1 calls it without looking whether it is there
def test_experts_exchange_tokens_twice_a_layer() -> None:
    job = gpt("--experts", "8", "--expert-parallel", "4")
    exchanged = Counter(one.kind for one in job.collectives(Phase.FORWARD))
    assert exchanged["all_to_all"] == 3 * LAYERS  # tokens there and back, and how sure the router was
    assert not [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]


@with_transformer_engine
def test_sequence_parallelism_gathers_and_scatters_where_tensor_parallelism_sums() -> None:
    job = gpt("--transformer-engine", "--tensor-parallel", "2", "--sequence-parallel")
    assert job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * (MATRICES + OUTPUT) // 2
    gathered = [one for one in job.collectives(Phase.FORWARD) if one.kind == "all_gather"]
    scattered = [one for one in job.collectives(Phase.FORWARD) if one.kind == "reduce_scatter"]
    assert [one.bytes for one in gathered] == [ACTIVATION] * (2 * LAYERS + 1)
    assert [one.bytes for one in scattered] == [ACTIVATION] * (2 * LAYERS + 1)


@with_transformer_engine
def test_context_parallelism_passes_keys_and_values_in_a_ring() -> None:
    """Two ranks: the own part is causal; of the other part, half of the queries see all or all see half."""
    job = gpt("--transformer-engine", "--context-parallel", "2")
    shapes = Counter(
        (one.q_len, one.kv_len, one.causal)
        for one in job.signatures(job.work(Phase.FORWARD))
        if isinstance(one, Attention)
    )
    half, quarter = TOKENS // 2, TOKENS // 4
    assert shapes[half, half, True] == LAYERS
    assert shapes[quarter, half, False] + shapes[half, quarter, False] == LAYERS
    sent = [one.bytes for one in job.collectives(Phase.FORWARD) if one.kind == "send_recv"]
    assert sent == [2 * ACTIVATION // 2] * LAYERS  # keys and values of half the tokens
