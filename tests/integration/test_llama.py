"""Hugging Face's Llama with FSDP2 and tensor parallelism on 128 ranks, compared with closed forms."""

from __future__ import annotations

from collections import Counter

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Attention, Optimizer
from support.captured import Job, run
from support.long_cases import marked

WORLD = 128
TOKENS = 8192
PARAMETERS = {"8b": 8_030_261_248, "70b": 70_553_706_496}
MODELS = marked(PARAMETERS, ["70b"])
HIDDEN = {"8b": 4096, "70b": 8192}
LAYERS = {"8b": 32, "70b": 80}
FEED_FORWARD = {"8b": 14336, "70b": 28672}
VOCABULARY = 128_256

pytestmark = pytest.mark.torch_cuda


def llama(name: str, *args: str) -> Job:
    return run("llama_fsdp2.py", "--model", name, *args, world_size=WORLD)


def outside_layers(name: str) -> int:
    """Parameters of embedding, output layer and last norm."""
    return 2 * VOCABULARY * HIDDEN[name] + HIDDEN[name]


def layer_products(name: str) -> int:
    """Parameters of the layers' matrices, without each layer's two norms."""
    return PARAMETERS[name] - outside_layers(name) - 2 * HIDDEN[name] * LAYERS[name]


@pytest.mark.parametrize("name", MODELS)
def test_the_parameters_are_the_published_ones(name: str) -> None:
    assert llama(name).trace.manifest.model["parameters"] == PARAMETERS[name]


@pytest.mark.parametrize("name", MODELS)
def test_matrix_products_have_two_flops_per_parameter_and_token(name: str) -> None:
    """Backward has twice as many; recomputation repeats the layers' forward except for the unused last product."""
    job = llama(name)
    output, layers = VOCABULARY * HIDDEN[name], layer_products(name)
    unneeded = HIDDEN[name] * FEED_FORWARD[name] * LAYERS[name]
    assert job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * (layers + output)
    assert job.gemm_flops(Phase.BACKWARD) == 4 * TOKENS * (layers + output)
    assert job.gemm_flops(Phase.RECOMPUTE) == 2 * TOKENS * (layers - unneeded)


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_causal_and_grouped(name: str) -> None:
    """Each layer has a forward, a recomputed and a backward kernel; keys and values keep their 8 heads."""
    job = llama(name)
    found = [signature for signature in job.signatures(job.work()) if isinstance(signature, Attention)]
    assert Counter(signature.direction for signature in found) == {
        "forward": 2 * LAYERS[name],
        "backward": LAYERS[name],
    }
    shapes = {(one.batch, one.heads, one.kv_heads, one.q_len, one.kv_len, one.head_dim, one.causal) for one in found}
    assert shapes == {(1, HIDDEN[name] // 128, 8, TOKENS, TOKENS, 128, True)}


@pytest.mark.parametrize("name", MODELS)
def test_fsdp_gathers_parameters_twice_and_scatters_gradients_once(name: str) -> None:
    """In bf16 and fp32; parameters outside the layers stay gathered between forward and backward."""
    job = llama(name)
    parameters, root = PARAMETERS[name], outside_layers(name)
    assert job.collective_bytes("all_gather", Phase.FORWARD) == 2 * parameters
    assert job.collective_bytes("all_gather", Phase.BACKWARD) == 2 * (parameters - root)
    assert job.collective_bytes("reduce_scatter") == 4 * parameters
    calls = Counter(collective.kind for collective in job.collectives())
    assert calls["all_gather"] == 2 * LAYERS[name] + 1
    assert calls["reduce_scatter"] == LAYERS[name] + 1


@pytest.mark.parametrize("name", MODELS)
def test_each_rank_stores_its_shard_of_parameters_gradients_and_moments(name: str) -> None:
    """In fp32, at the end of a step. The allocator adds up to 1 MiB to the last block of each segment."""
    held = llama(name).held_after_step()
    shard = 4 * PARAMETERS[name] / WORLD
    assert shard <= held[Category.PARAMETER] < 1.04 * shard
    assert shard <= held[Category.GRADIENT] < 1.04 * shard
    assert 2 * shard <= held[Category.OPTIMIZER_STATE] < 2.08 * shard


def test_fused_adamw_reads_four_and_writes_three_numbers_for_each_parameter() -> None:
    """It reads parameters, gradients and both moments, and writes all but the gradients; fp32 shards."""
    job = llama("8b")
    fused = [
        signature
        for signature in job.signatures(job.work(Phase.OPTIMIZER))
        if isinstance(signature, Optimizer) and "fused_adamw" in signature.operator
    ]
    shard = 4 * PARAMETERS["8b"] // WORLD
    assert sum(signature.bytes_read for signature in fused) == pytest.approx(4 * shard, rel=1e-4)
    assert sum(signature.bytes_written for signature in fused) == pytest.approx(3 * shard, rel=1e-4)


def test_a_layer_takes_twice_as_long_backward_as_forward() -> None:
    """Its recomputation takes about as long as its forward; every layer has its own scope in all three."""
    job = llama("8b")
    for layer in (0, 15, 31):
        forward, backward, again = (
            job.seconds(phase, scope=f"layers.{layer}") for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)
        )
        assert 1.7 < backward / forward < 2.6
        assert 0.7 < again / forward <= 1.0


@pytest.mark.parametrize("name", MODELS)
def test_the_job_fits_and_computes_for_most_of_its_step(name: str) -> None:
    result = llama(name).result
    assert result.memory.fits
    assert result.mfu is not None
    assert 0.3 < result.mfu < 0.75
    assert result.time.compute_s < result.step_time_s < 1.5 * result.time.compute_s


@pytest.mark.long
def test_tensor_parallelism_splits_the_layers_but_not_the_output() -> None:
    """Each of eight ranks has an eighth of the layers' products and all of the output layer's."""
    job = llama("70b", "--tensor-parallel", "8")
    output, layers = VOCABULARY * HIDDEN["70b"], layer_products("70b") // 8
    assert job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * (layers + output)
    assert job.gemm_flops(Phase.BACKWARD) == 4 * TOKENS * (layers + output)


@pytest.mark.long
def test_tensor_parallelism_reduces_activations_within_a_node() -> None:
    """Forward the outputs of attention and MLP, backward the gradients of column-parallel inputs."""
    job = llama("70b", "--tensor-parallel", "8")
    activation = 2 * TOKENS * HIDDEN["70b"]
    calls: Counter[tuple[Phase, int]] = Counter()
    for phase in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD):
        for collective in job.collectives(phase):
            if collective.kind == "all_reduce":
                assert collective.bytes == activation
                assert job.trace.manifest.groups[collective.group].ranks == tuple(range(8))
                calls[phase, collective.group] += 1
    assert sorted(calls.values()) == [80, 160, 400]


@pytest.mark.long
def test_with_tensor_parallelism_fsdp_spans_the_nodes() -> None:
    """The 16 ranks with the same local rank (0, 8, 16 …) shard an eighth of each layer."""
    job = llama("70b", "--tensor-parallel", "8")
    gathers = [collective for collective in job.collectives() if collective.kind == "all_gather"]
    groups = {job.trace.manifest.groups[collective.group].ranks for collective in gathers}
    assert groups == {tuple(range(0, 128, 8))}
    norms = 2 * HIDDEN["70b"] * LAYERS["70b"]
    whole = layer_products("70b") // 8 + norms + outside_layers("70b")
    assert job.collective_bytes("all_gather", Phase.FORWARD) == pytest.approx(2 * whole, rel=1e-3)
