"""torchtitan's small models with each parallelism, launched unchanged: captured ranks and their work."""

from __future__ import annotations

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Attention, Gemm, GroupedGemm
from support.torchtitan import Training, train

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("torchtitan")]

LAYERS, HIDDEN, VOCABULARY, SEQUENCE, SAMPLES = 6, 256, 2048, 2048, 8
PARAMETERS = 6_163_712
TOKENS = SEQUENCE * SAMPLES
OUTPUT = VOCABULARY * HIDDEN  # the output layer's matrix, and the embedding's
PRODUCTS = PARAMETERS - OUTPUT - (2 * LAYERS + 1) * HIDDEN  # all matrices: not the embedding, not the norms
ACTIVATION = 2 * TOKENS * HIDDEN  # bytes of bf16


def small(*options: str, gpus: int, config: str = "llama3_debugmodel", module: str = "llama3") -> Training:
    fixed = ("--training.disable_cuda_graphs", "--validator.freq", "1000")
    return train(config, *fixed, *options, module=module, gpus=gpus, ranks="auto", steps=2)


def captured(training: Training) -> list[tuple[int, int]]:
    """Captured ranks, and the number of ranks that each represents."""
    return [(rank.rank, rank.represented) for rank in training.job.result.ranks]


def sizes(training: Training, kind: str, group: str, *phases: Phase) -> list[int]:
    """Bytes of the collectives of a kind on the groups of a name."""
    groups = training.job.trace.manifest.groups
    found = training.job.collectives(*phases)
    return [one.bytes for one in found if one.kind == kind and groups[one.group].name == group]


@pytest.mark.long
def test_tensor_parallelism_gathers_and_scatters_activations() -> None:
    """With sequence parallelism: before and after attention and FFN, and at both ends of the model."""
    training = small("--parallelism.tensor_parallel_degree", "2", gpus=4)
    assert captured(training) == [(0, 4)]
    assert training.job.result.coverage.compared == 3
    assert training.losses == [2.0, 2.0]  # of the policy, though the vocabulary is split and no operator is a loss
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        for kind in ("all_gather", "reduce_scatter"):
            assert sizes(training, kind, "mesh_tp", phase) == [ACTIVATION] * (2 * LAYERS + 1)
    assert training.job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * PRODUCTS // 2
    assert training.job.held_after_step()[Category.PARAMETER] == pytest.approx(PARAMETERS * 4 / 4, rel=0.01)


@pytest.mark.long
def test_context_parallelism_gathers_keys_and_values() -> None:
    """Each of two ranks has half of the queries, from both ends, which see half of the keys on average."""
    training = small("--parallelism.context_parallel_degree", "2", gpus=4)
    assert captured(training) == [(0, 2), (1, 2)]  # the mask of the second half adds an offset
    assert sizes(training, "all_gather", "mesh_cp", Phase.FORWARD) == [ACTIVATION] * (2 * LAYERS)
    assert sizes(training, "reduce_scatter", "mesh_cp", Phase.BACKWARD) == [ACTIVATION] * (2 * LAYERS)
    assert training.job.gemm_flops(Phase.FORWARD) == 2 * (TOKENS // 2) * PRODUCTS
    found = [one for one in training.job.signatures(training.job.work(Phase.FORWARD)) if isinstance(one, Attention)]
    assert [one.q_len * one.kv_len for one in found] == [SEQUENCE**2 // 4] * LAYERS


@pytest.mark.long
def test_float8_products_are_those_of_the_model() -> None:
    training = small(gpus=2, config="llama3_debugmodel_float8")
    assert captured(training) == [(0, 2)]
    work = training.job.signatures(training.job.work())
    assert {one.dtype for one in work if isinstance(one, Gemm)} == {"float8_e4m3fn"}
    assert training.job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * PRODUCTS
    assert training.job.gemm_flops(Phase.BACKWARD) == 4 * TOKENS * PRODUCTS


@pytest.mark.long
def test_experts_of_two_ranks_exchange_every_token_three_times() -> None:
    """Five layers of eight experts, three per token; FSDP shards a rank's experts with the other pair."""
    layers, experts, top = 5, 8, 3
    training = small(
        "--parallelism.expert_parallel_degree", "2", gpus=4, module="deepseek_v3", config="deepseek_v3_debugmodel"
    )
    assert captured(training) == [(0, 4)]
    exchanged = [size for size in sizes(training, "all_to_all", "mesh_ep", Phase.FORWARD) if size > 1024]
    assert exchanged == [top * ACTIVATION] * (2 * layers)
    assert sizes(training, "all_gather", "mesh_efsdp", Phase.FORWARD) == [2 * experts // 2 * 3 * HIDDEN**2] * layers
    grouped = [one for one in training.job.signatures(training.job.work(Phase.FORWARD)) if isinstance(one, GroupedGemm)]
    assert {(one.groups, one.m) for one in grouped} == {(experts // 2, TOKENS * top)}


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [pytest.param("1F1B", 1, marks=pytest.mark.long), pytest.param("Interleaved1F1B", 2, marks=pytest.mark.long)],
)
def test_stages_split_the_products_and_send_activations(schedule: str, chunks: int) -> None:
    """Two stages; every micro-batch crosses each boundary between chunks, forward and backward."""
    training = small(
        *("--parallelism.pipeline_parallel_degree", "2", "--parallelism.pipeline_parallel_schedule", schedule), gpus=2
    )
    assert captured(training) == [(0, 1), (1, 1)]
    stages = [training.of(rank) for rank in (0, 1)]
    assert stages[0].trace.manifest.batch["tokens"] == TOKENS  # though its first step runs stages for their shapes
    assert training.job.result.throughput.tokens_per_s == pytest.approx(TOKENS / training.job.result.step_time_s)
    assert sum(stage.trace.manifest.model["parameters"] for stage in stages) == PARAMETERS
    assert sum(stage.gemm_flops(Phase.FORWARD) for stage in stages) == 2 * TOKENS * PRODUCTS
    assert all(rank.bubble_s > 0 for rank in training.job.result.ranks)
    sent = [one.bytes for stage in stages for one in stage.collectives() if one.kind in ("send", "send_recv")]
    assert sent == [ACTIVATION // SAMPLES] * (2 * SAMPLES * (2 * chunks - 1))
