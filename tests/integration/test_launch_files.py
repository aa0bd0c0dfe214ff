"""Launch files written for a plan run unchanged and produce the plan's work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from presim.composition.launch_files.launch_job import LaunchJob
from presim.composition.launch_files.write_files import write_all
from presim.composition.plan import Plan
from presim.evaluation.options import EvaluationOptions
from presim.trace.schema import Phase
from presim.trace.signatures import Copy, Fused, Gemm
from presim.verbs.simulate import evaluate_saved
from support.captured import Job
from support.command import presim

pytestmark = [pytest.mark.torch_cuda]
LAYERS, HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, VOCABULARY, TOKENS = 2, 256, 768, 8, 4, 2048, 512
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
LAYER = HIDDEN * (2 * HIDDEN + 2 * HIDDEN * KV_HEADS // HEADS) + 3 * HIDDEN * FEED_FORWARD
FORWARD = 2 * TOKENS * (LAYERS * LAYER + VOCABULARY * HIDDEN)  # of one sample


def captured(plan: Plan, framework: str, folder: Path) -> Job:
    """The first rank of four GPUs."""
    written = write_all(LaunchJob(config=MODEL, plan=plan, nodes=1, gpus_per_node=4), folder / "files")
    words: Sequence[str] = written.commands[framework]
    done = presim(
        *("run", "--quiet", "--gpu", "h100-sxm", "--ranks", "0", "--steps", "2", "--save", folder / "job"),
        *("--", *words),
        cwd=written.folders[framework],
        modules=[written.folders[framework]],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Job(evaluate_saved(folder / "job", EvaluationOptions()))


@pytest.mark.long
@pytest.mark.needs("torchtitan")
def test_torchtitan_does_a_plan_s_work(tmp_path: Path) -> None:
    plan = Plan(sequence=TOKENS, micro_batch=2, tensor=2, sequence_parallel=True, recompute="full")
    job = captured(plan, "torchtitan", tmp_path)
    assert job.gemm_flops(Phase.FORWARD) == 2 * FORWARD // 2
    assert job.trace.manifest.batch == {"tokens": 2 * TOKENS, "samples": 2}


@pytest.mark.needs("megatron.core")
@pytest.mark.needs("transformer_engine")
def test_megatron_core_does_a_plan_s_work(tmp_path: Path) -> None:
    plan = Plan(sequence=TOKENS, tensor=2, sequence_parallel=True, global_batch=4, data_style="zero1")
    job = captured(plan, "megatron", tmp_path)
    assert job.gemm_flops(Phase.FORWARD) == 2 * FORWARD // 2  # two micro-batches, each on two ranks


@pytest.mark.long
@pytest.mark.needs("deepspeed")
def test_deepspeed_does_a_plan_s_work(tmp_path: Path) -> None:
    job = captured(Plan(sequence=TOKENS, micro_batch=2), "deepspeed", tmp_path)
    assert job.gemm_flops(Phase.FORWARD) == 2 * FORWARD


@pytest.mark.long
@pytest.mark.needs("accelerate")
def test_accelerate_does_a_plan_s_work(tmp_path: Path) -> None:
    job = captured(Plan(sequence=TOKENS, data_style="hsdp", shard=2, recompute="full"), "accelerate", tmp_path)
    assert job.gemm_flops(Phase.FORWARD) == FORWARD
    assert job.gemm_flops(Phase.RECOMPUTE)


@pytest.mark.long
@pytest.mark.needs("torchao")
@pytest.mark.needs("accelerate")
@pytest.mark.parametrize("name", ["fp8-row", "int8"])
def test_accelerate_s_program_runs_torchao_s_layers_in_blocks(name: str, tmp_path: Path) -> None:
    """Each block has seven linear layers; forward and backward of a layer are three products."""
    job = captured(Plan(sequence=TOKENS, passes=(name,)), "accelerate", tmp_path)
    work = job.signatures(job.work())
    floats = [one for one in work if isinstance(one, Gemm) and one.dtype == "float8_e4m3fn"]
    integers = [one for one in work if isinstance(one, Fused) and one.name == "_scaled_int8_mm_kernel"]
    assert len(integers if name == "int8" else floats) == LAYERS * 7 * 3


@pytest.mark.long
@pytest.mark.needs("megatron.core")
@pytest.mark.needs("transformer_engine")
def test_megatron_core_offloads_activations_and_the_optimizer(tmp_path: Path) -> None:
    """Saved tensors of the first layer travel down and up; so do gradients and updated parameters, in their turn."""
    plan = Plan(sequence=TOKENS, data_style="zero1", global_batch=4, offload_activations=1, offload_optimizer="cpu")
    job = captured(plan, "megatron", tmp_path)
    copies = [one for one in job.signatures(job.work()) if isinstance(one, Copy)]
    moved = {way: sum(one.bytes for one in copies if one.direction == way) for way in ("d2h", "h2d")}
    norms = 2 * TOKENS * HIDDEN * 2  # inputs of the first layer's two norms at least
    parameters = LAYERS * LAYER + 2 * VOCABULARY * HIDDEN
    assert moved["d2h"] > norms + 4 * parameters // 4  # a quarter of the gradients on each of four ranks, in fp32
    assert moved["h2d"] > norms + 2 * parameters // 4
