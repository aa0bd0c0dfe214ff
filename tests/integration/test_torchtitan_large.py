"""Llama-3 70B and a shortened 405B with torchtitan's configurations on 256 and 512 GPUs, compared with closed forms.

What the host spends does not count here, so that the figures are those of the device and its network.
"""

from __future__ import annotations

from collections import Counter

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Attention, Fused, Gemm
from support.captured import Job
from support.torchtitan import Training, train

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("torchtitan"), pytest.mark.long]

VOCABULARY, SEQUENCE, TENSOR = 128_256, 8192, 8
PARAMETERS_70B, LAYERS_70B, HIDDEN_70B = 70_553_706_496, 80, 8192
PARAMETERS_405B, LAYERS_405B, HIDDEN_405B, WIDE_405B = 405_853_388_800, 126, 16_384, 53_248
CUT = 20  # layers that are captured of the 405B: what tests ask of it does not depend on their number


def matrices(parameters: int, layers: int, hidden: int) -> int:
    """Elements of all multiplied matrices: neither the embedding nor the norms."""
    return parameters - VOCABULARY * hidden - (2 * layers + 1) * hidden


def layer_405b() -> int:
    """Elements of the matrices of one layer."""
    return HIDDEN_405B * (2 * HIDDEN_405B + 2 * 8 * 128 + 3 * WIDE_405B)


def parameters_405b(layers: int) -> int:
    """Parameters of the model with so many of its layers."""
    return layers * layer_405b() + 2 * VOCABULARY * HIDDEN_405B + (2 * layers + 1) * HIDDEN_405B


def counted(job: Job, group: str, *phases: Phase) -> Counter[tuple[str, int]]:
    """Number of collectives of a kind and size on the groups of a name."""
    groups = job.trace.manifest.groups
    found = [one for one in job.collectives(*phases) if groups[one.group].name == group]
    return Counter((one.kind, one.bytes) for one in found)


def moved(job: Job, group: str, kind: str, *phases: Phase) -> int:
    """Bytes of all collectives of a kind on the groups of a name."""
    return sum(size * times for (found, size), times in counted(job, group, *phases).items() if found == kind)


@pytest.fixture(scope="module")
def llama_70b() -> Training:
    """With its own configuration: tensor parallelism of 8, FSDP over 32, full recomputation."""
    return train("llama3_70b", gpus=256, steps=1, ours=("--host-time", "0"))


def test_70b_has_its_size_and_its_products(llama_70b: Training) -> None:
    samples, model = 8, matrices(PARAMETERS_70B, LAYERS_70B, HIDDEN_70B)
    job = llama_70b.job
    assert llama_70b.parameters == PARAMETERS_70B == job.trace.manifest.model["parameters"]
    assert job.trace.manifest.batch == {"tokens": samples * SEQUENCE, "samples": samples}
    each = 2 * samples * SEQUENCE // TENSOR
    assert job.gemm_flops(Phase.FORWARD) == each * model
    assert job.gemm_flops(Phase.BACKWARD) == 2 * each * model
    assert job.gemm_flops(Phase.RECOMPUTE) == each * (model - VOCABULARY * HIDDEN_70B)
    assert job.result.mfu is not None
    assert job.result.hfu is not None
    assert 0.1 < job.result.mfu < job.result.hfu < 0.6


def test_70b_shards_over_two_groups(llama_70b: Training) -> None:
    """Activations within a node; parameters, except for the unsplit norms, between nodes."""
    job, samples, shards = llama_70b.job, 8, 32
    norms = (2 * LAYERS_70B + 1) * HIDDEN_70B
    local = (PARAMETERS_70B - norms) // TENSOR + norms
    activation = 2 * samples * SEQUENCE * HIDDEN_70B
    for phase, times in ((Phase.FORWARD, 1), (Phase.BACKWARD, 1), (Phase.RECOMPUTE, 0)):
        found = counted(job, "mesh_tp", phase)
        for kind in ("all_gather", "reduce_scatter"):
            assert found[kind, activation] == 2 * LAYERS_70B + times
    assert moved(job, "mesh_dp_shard", "all_gather", Phase.FORWARD) == 2 * local
    assert moved(job, "mesh_dp_shard", "reduce_scatter", Phase.BACKWARD) == 4 * local
    held = job.held_after_step()
    shard = 4 * local / shards
    assert shard <= held[Category.PARAMETER] < 1.04 * shard
    assert shard <= held[Category.GRADIENT] < 1.04 * shard
    assert 2 * shard <= held[Category.OPTIMIZER_STATE] < 2.08 * shard


def test_70b_stores_its_shards_its_checkpoints_and_one_active_layer(llama_70b: Training) -> None:
    """Full recomputation keeps one activation per layer, split over the tensor-parallel ranks.

    Beside it a layer's parameters and gradients as a whole, and the activations of one layer: gathered inputs and
    the three of its FFN (28,672 wide), forward and backward.
    """
    memory = llama_70b.job.result.memory
    samples, wide = 8, 28_672
    activation = 2 * samples * SEQUENCE * HIDDEN_70B
    kept = 8 * PARAMETERS_70B // 256 + LAYERS_70B * activation // TENSOR
    layer = 8 * PARAMETERS_70B // LAYERS_70B // TENSOR
    working = 4 * activation + 6 * 2 * samples * SEQUENCE * wide // TENSOR
    assert kept < memory.peak_allocated_bytes < kept + 2 * layer + working
    assert memory.fits


@pytest.fixture(scope="module")
def llama_405b() -> Training:
    """Twenty layers in its configuration: two stages, context parallelism of 2, tensor parallelism, 8-bit products.

    In micro-batches a stage's gradients stay whole until the last one: of half the model they fit on a B200, not on an
    H100. Compiling its kernels takes another 40 s of CPU and is left to two layers of the same shapes (below).
    """
    return train(
        "llama3_405b_of_twenty_layers",
        *("--compile.no-enable", "--compile.no-enable_async_tensor_parallel", "--training.disable_cuda_graphs"),
        *("--parallelism.pipeline_parallel_degree", "2", "--parallelism.context_parallel_degree", "2"),
        module="cut_llama",
        gpus=512,
        ranks="0,256",
        steps=1,
        ours=("--host-time", "0", "--gpu", "b200-sxm"),
    )


@pytest.fixture(scope="module")
def stages(llama_405b: Training) -> tuple[Job, Job]:
    return llama_405b.of(0), llama_405b.of(256)


def test_405b_shares_its_products_between_stages(llama_405b: Training, stages: tuple[Job, Job]) -> None:
    """Both run two micro-batches and, in the first step, a third one through all modules for shape inference."""
    assert parameters_405b(LAYERS_405B) == PARAMETERS_405B
    assert llama_405b.parameters == parameters_405b(CUT)
    assert sum(stage.trace.manifest.model["parameters"] for stage in stages) == parameters_405b(CUT)
    output = VOCABULARY * HIDDEN_405B
    model = matrices(parameters_405b(CUT), CUT, HIDDEN_405B)
    each = 2 * SEQUENCE // 2 // TENSOR  # one sample of half the sequence
    forward = [stage.gemm_flops(Phase.FORWARD) for stage in stages]
    assert sum(forward) == 3 * each * model
    assert forward[1] - forward[0] == 3 * each * output
    recomputed = [stage.gemm_flops(Phase.RECOMPUTE) for stage in stages]
    assert recomputed == [2 * each * (model - output) // 2, 3 * each * (model - output) // 2]
    for stage in stages:
        products = [one for one in stage.signatures(stage.work()) if isinstance(one, Gemm)]
        inner = {one.dtype for one in products if VOCABULARY // TENSOR not in (one.m, one.n, one.k)}
        assert inner == {"float8_e4m3fn"}
        assert {one.scaling for one in products if one.dtype == "float8_e4m3fn"} == {"", "outer"}
    assert llama_405b.job.result.mfu is not None
    assert 0.005 < llama_405b.job.result.mfu < 0.5


def test_405b_uses_every_parallel_group(stages: tuple[Job, Job]) -> None:
    """Stages send activations split by context and tensor parallelism; keys and values are gathered."""
    layers, shards = CUT // 2, 32
    activation = 2 * SEQUENCE // 2 * HIDDEN_405B
    heads, kv_heads, dim = 128, 8, 128
    for job, passes in zip(stages, (3 + 2, 3 + 3)):  # forward and recomputed
        sizes = {group.name: group.size for group in job.trace.manifest.groups}
        assert (sizes["mesh_pp"], sizes["mesh_tp"], sizes["mesh_cp"], sizes["mesh_dp_shard_cp"]) == (2, 8, 2, shards)
        attention = [one for one in job.signatures(job.work()) if isinstance(one, Attention)]
        forward = [one for one in attention if one.direction == "forward"]
        assert len(forward) == passes * layers
        assert {(one.heads, one.kv_heads) for one in forward} == {(heads // TENSOR, kv_heads // TENSOR)}
        gathered = counted(job, "mesh_cp", Phase.FORWARD, Phase.RECOMPUTE)
        assert gathered["all_gather", 2 * SEQUENCE * dim * kv_heads // TENSOR] == 2 * passes * layers
        tensor = counted(job, "mesh_tp", Phase.FORWARD, Phase.RECOMPUTE)
        assert tensor["all_gather", activation] >= 2 * passes * layers
        assert tensor["reduce_scatter", activation] >= 2 * passes * layers
        handed = counted(job, "mesh_pp")
        assert sum(handed[kind, activation // TENSOR] for kind in ("send", "recv", "send_recv")) == 3


def test_405b_stores_half_a_model_s_shards_and_whole_gradients(stages: tuple[Job, Job]) -> None:
    """While it runs: weights (2 bytes) and gradients (4) of half the model, split by tensor parallelism only."""
    shard = 4 * parameters_405b(CUT) / 512
    whole = parameters_405b(CUT) // 2 // TENSOR
    output = 4 * VOCABULARY * HIDDEN_405B / 256
    for job, again in zip(stages, (0, output)):  # the last stage holds its output layer's gradient twice
        held = job.held_after_step()
        assert shard <= held[Category.PARAMETER] < 1.07 * shard
        assert shard + again <= held[Category.GRADIENT] < 1.02 * (shard + again)
        assert 2 * shard <= held[Category.OPTIMIZER_STATE] < 2.14 * shard
        assert 6 * whole < job.result.memory.peak_allocated_bytes < 7 * whole


@pytest.fixture(scope="module")
def compiled() -> Training:
    """Two compiled layers of the 405B on as many GPUs; 16-bit products have fewer kernels."""
    options, ours = ("--training.disable_cuda_graphs",), ("--host-time", "0", "--gpu", "b200-sxm")
    return train("llama3_405b_of_two_layers", *options, module="cut_llama", gpus=512, steps=1, ours=ours)


def test_compiled_layers_have_the_405b_s_products(compiled: Training) -> None:
    """Backward recomputes all of a layer's products except for the down projection, whose result is unused."""
    layers, parameters = 2, parameters_405b(2)
    assert compiled.parameters == parameters
    job, each = compiled.job, 2 * 2 * SEQUENCE // TENSOR
    model = matrices(parameters, layers, HIDDEN_405B)
    assert job.gemm_flops(Phase.FORWARD) == each * model
    assert job.gemm_flops(Phase.BACKWARD) == each * (2 * model + layers * (layer_405b() - HIDDEN_405B * WIDE_405B))
    attention = [one for one in job.signatures(job.work()) if isinstance(one, Attention)]
    assert Counter(one.direction for one in attention) == {"forward": 2 * layers, "backward": layers}
    assert {(one.heads, one.kv_heads, one.q_len, one.kv_len) for one in attention} == {(16, 1, SEQUENCE, SEQUENCE)}


def test_compiled_layers_exchange_activations_during_their_products(compiled: Training) -> None:
    """Asynchronous tensor parallelism: every gather overlaps with a product, which runs in pieces."""
    layers, job = 2, compiled.job
    gathered = counted(job, "mesh_tp", Phase.FORWARD)["all_gather", 2 * 2 * SEQUENCE * HIDDEN_405B]
    assert gathered < 2 * layers
    pieces = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Gemm)]
    assert Counter(one.m for one in pieces)[2 * SEQUENCE // TENSOR] >= TENSOR * 3 * layers
    assert [one for one in job.signatures(job.work()) if isinstance(one, Fused)]
    assert any("Asynchronous tensor parallelism" in note for note in job.result.notes)
