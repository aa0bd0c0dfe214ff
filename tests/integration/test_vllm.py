"""vLLM's offline engine: it sizes its cache by the emulated memory and serves a batch to its end."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from presim.evaluation.options import RunOptions
from presim.trace.schema import Kind
from presim.trace.signatures import Attention, Gemm, Kernel
from presim.verbs.run import run_and_evaluate
from support.captured import EXAMPLES, SCRIPTS, Job

LAYERS, PROMPTS, INPUT, OUTPUT = 2, 8, 32, 6
KV_HEADS, HEAD, BLOCK = 8, 128, 16

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm")]


@pytest.fixture(scope="module", params=["0", "1"], ids=["first runner", "second runner"])
def job(request: pytest.FixtureRequest) -> Job:
    """With both of vLLM's model runners; the second keeps its counters on the device, in Triton kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_USE_V2_MODEL_RUNNER", request.param)
        sizes = {"layers": LAYERS, "prompts": PROMPTS, "input": INPUT, "output": OUTPUT}
        arguments = [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
        options = RunOptions(gpu="h100-sxm", world_size=1, rank=0, steps=0)
        script = str(EXAMPLES / "vllm_offline.py")
        return Job(
            run_and_evaluate([script, "--eager", *arguments], options, stdout=2)
        )  # no fork: vLLM reads variables


def attention(job: Job) -> list[Attention]:
    return [one for one in job.signatures(job.work()) if isinstance(one, Attention)]


def test_the_batch_is_served_to_its_end(job: Job) -> None:
    """All prompts at once, then one token per request, with keys growing by one."""
    assert job.trace.manifest.exit == "ok"
    served = Counter((one.q_len, one.kv_len) for one in attention(job) if one.batch == PROMPTS)
    assert served[INPUT, INPUT] == LAYERS
    for token in range(1, OUTPUT):
        assert served[1, INPUT + token] == LAYERS


def test_the_cache_uses_vllm_s_memory_share(job: Job) -> None:
    """vLLM fills 92 % of the memory with weights, measured activations and the cache."""
    kinds, values = job.trace.column("kind"), job.trace.column("value")
    cache = int(values[kinds == Kind.ALLOC].max())
    assert cache % (LAYERS * 2 * BLOCK * KV_HEADS * HEAD * 2) == 0  # keys and values of whole blocks
    assert cache > 0.8 * job.trace.manifest.device_total_bytes
    assert job.peak_allocated() / job.trace.manifest.device_total_bytes == pytest.approx(0.92, abs=0.03)


def test_products_of_a_decoding_step_are_the_model_s(job: Job) -> None:
    hidden, feed_forward, vocabulary = 4096, 14336, 128256
    matrices = LAYERS * (hidden * (hidden + 2 * KV_HEADS * HEAD) + hidden * hidden + 3 * hidden * feed_forward)
    first, last = (np.flatnonzero(_is_decoding(job, length)) for length in (INPUT + 1, INPUT + 2))
    step = job.trace.column("signature")[first[0] : last[0]]
    products = [one for one in (job.trace.signatures[index] for index in step if index >= 0) if isinstance(one, Gemm)]
    assert {one.m for one in products} == {PROMPTS}
    assert sum(one.flops for one in products) == 2 * PROMPTS * (matrices + hidden * vocabulary)


def _is_decoding(job: Job, length: int) -> np.ndarray:
    chosen = [
        index
        for index, one in enumerate(job.trace.signatures)
        if isinstance(one, Attention) and (one.batch, one.q_len, one.kv_len) == (PROMPTS, 1, length)
    ]
    return np.isin(job.trace.column("signature"), chosen)


def test_no_kernel_of_vllm_s_own_library_is_known_by_its_name_only(job: Job) -> None:
    """The remaining ones are Triton kernels for sampling and bookkeeping."""
    unknown = [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]
    assert all(one.operator.startswith("triton::") for one in unknown)
    assert not job.trace.manifest.unmodelled_calls


def test_data_parallel_ranks_gather_each_other_s_tokens_for_their_experts() -> None:
    """Prompts of 48 and 64 tokens, then one token each; two chosen experts ride along, each with a factor."""
    options = RunOptions(gpu="h100-sxm", world_size=2, steps=0)
    job = Job(run_and_evaluate([str(SCRIPTS / "vllm_data_parallel.py")], options, stdout=2))
    assert job.trace.manifest.exit == "ok"
    moved = Counter((one.kind, one.bytes) for one in job.collectives())
    hidden, layers, chosen = 2 * 512, 2, 2 * (4 + 4)
    unequal = {"broadcast": 48 + 64, "reduce": 48 + 64}
    equal = {"all_gather": 2, "reduce_scatter": 2}
    for kind, tokens in (unequal | equal).items():
        back = kind in ("reduce", "reduce_scatter")
        steps = 1 if kind in unequal else 2
        assert moved[kind, tokens * (hidden + (0 if back else chosen))] == layers * steps, kind
