"""scaled_dot_product_attention: the kernels of each backend have the exact shapes of the call."""

from __future__ import annotations

import pytest

from presim.trace.schema import Phase
from presim.trace.signatures import Attention, Gemm
from support.captured import run

FULL = {"batch": 2, "heads": 16, "kv_heads": 16, "q_len": 512, "kv_len": 512, "head_dim": 128, "causal": False}
CAUSAL = FULL | {"causal": True}
GROUPED = CAUSAL | {"kv_heads": 4}
CROSS = {"batch": 3, "heads": 8, "kv_heads": 8, "q_len": 256, "kv_len": 1024, "head_dim": 64, "causal": False}

pytestmark = pytest.mark.torch_cuda


@pytest.mark.parametrize("backend", ["flash", "cudnn", "efficient"])
def test_a_fused_backend_is_one_forward_and_one_backward_a_call(backend: str) -> None:
    """Helpers of a backend (joining split keys, preparing gradients) do not count as attention again."""
    job = run("attention.py", backend)
    calls = [FULL, CAUSAL, CROSS] + [GROUPED] * (backend != "efficient")
    for direction, phase in (("forward", Phase.FORWARD), ("backward", Phase.BACKWARD)):
        work = job.signatures(job.work(phase))
        assert [signature for signature in work if isinstance(signature, Attention)] == [
            Attention(direction=direction, v_head_dim=call["head_dim"], dtype="bfloat16", backend=backend, **call)
            for call in calls
        ]


def test_the_math_backend_is_matrix_products_and_a_softmax() -> None:
    """Two products forward, four backward, in fp32, of all pairs; every batch and head is one matrix."""
    job = run("attention.py", "math")
    forward, backward = (
        [signature for signature in job.signatures(job.work(phase)) if isinstance(signature, Gemm)]
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    )
    pairs = [2 * 16 * 512 * 512 * 128, 2 * 16 * 512 * 512 * 128, 3 * 8 * 256 * 1024 * 64, 2 * 16 * 512 * 512 * 128]
    assert [gemm.flops for gemm in forward] == [2 * pair for pair in pairs for _ in range(2)]
    assert [gemm.flops for gemm in backward] == [2 * pair for pair in pairs for _ in range(4)]
    assert not any(isinstance(signature, Attention) for signature in job.trace.signatures)
