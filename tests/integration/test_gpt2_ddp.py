"""GPT-2 with DistributedDataParallel on 8 ranks."""

from __future__ import annotations

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import Attention
from support.captured import Job, run

PARAMETERS = 124_439_808
EMBEDDINGS = 50257 * 768 + 1024 * 768
NORMS_AND_BIASES = 25 * 2 * 768 + 12 * (2304 + 768 + 3072 + 768)
TOKENS = 12 * 1024

pytestmark = pytest.mark.torch_cuda


@pytest.fixture(scope="module")
def job() -> Job:
    return run("gpt2_ddp.py", world_size=8)


def test_the_model_is_the_published_one(job: Job) -> None:
    assert job.trace.manifest.model["parameters"] == PARAMETERS
    assert job.trace.manifest.batch == {"tokens": TOKENS, "samples": 12}


def test_matrix_products_have_six_flops_per_parameter_and_token(job: Job) -> None:
    """The output layer shares its matrix with the embedding and multiplies by it; embeddings do not multiply."""
    matrices = PARAMETERS - EMBEDDINGS - NORMS_AND_BIASES + 50257 * 768
    assert job.gemm_flops(Phase.FORWARD) == 2 * TOKENS * matrices
    assert job.gemm_flops(Phase.BACKWARD) == 4 * TOKENS * matrices


def test_attention_is_causal(job: Job) -> None:
    found = [signature for signature in job.signatures(job.work()) if isinstance(signature, Attention)]
    shapes = {(one.batch, one.heads, one.q_len, one.kv_len, one.head_dim, one.causal) for one in found}
    assert len(found) == 24
    assert shapes == {(12, 12, 1024, 1024, 64, True)}


def test_ddp_reduces_every_gradient_once_in_buckets(job: Job) -> None:
    """In fp32, over all 8 ranks, during backward; buckets hold at most 25 MiB or one large gradient."""
    reduced = job.collectives(Phase.BACKWARD)
    assert {collective.kind for collective in reduced} == {"all_reduce"}
    assert sum(collective.bytes for collective in reduced) == 4 * PARAMETERS
    assert 4 * PARAMETERS / (25 << 20) / 2 < len(reduced) < 4 * PARAMETERS / (25 << 20) + 2
    assert {job.trace.manifest.groups[collective.group].ranks for collective in reduced} == {tuple(range(8))}


def test_communication_hides_behind_backward(job: Job) -> None:
    time = job.result.time
    assert 0 < time.exposed_communication_s < time.communication_s


def test_the_trace_has_nccl_s_environment_and_the_cpu_of_its_host_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate capture, because the shared one was made without the variable."""
    monkeypatch.setenv("NCCL_MAX_NCHANNELS", "8")
    job = run.__wrapped__("gpt2_ddp.py", world_size=8, steps=1)
    assert job.trace.manifest.nccl["NCCL_MAX_NCHANNELS"] == "8"
    assert job.trace.manifest.reference_host


def test_every_rank_stores_the_whole_model(job: Job) -> None:
    """Parameters and two moments in fp32; gradients are in DDP's buckets."""
    held = job.held_after_step()
    size = 4 * PARAMETERS
    assert held[Category.PARAMETER] == pytest.approx(size, rel=0.05)
    assert held[Category.OPTIMIZER_STATE] == pytest.approx(2 * size, rel=0.05)
    assert held[Category.GRADIENT] + held[Category.COMMUNICATION] >= size
