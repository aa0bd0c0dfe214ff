"""torch.compile: generated kernels are recorded with their names and the bytes of their tensors."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from presim.trace.schema import Kind, Phase
from presim.trace.signatures import Attention, Fused, Kernel
from support.captured import SCRIPTS, run
from support.command import presim

pytestmark = [
    pytest.mark.torch_cuda,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="torch.compile needs Triton"),
]
TOKENS, WIDTH = 64, 512


def test_generated_kernels_move_their_argument_tensors() -> None:
    """The forward kernel reads the product's result and the norm's weights, and writes rows and statistics."""
    job = run("compiled.py")
    forward = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Fused)]
    assert [one.name for one in forward] == ["triton_per_fused_gelu_native_layer_norm_0"]
    assert all(one.plain > one.elements and one.special > 0 for one in forward)  # a normal distribution for each
    activation = 2 * TOKENS * WIDTH
    assert forward[0].bytes_read == pytest.approx(activation + 2 * 2 * WIDTH, rel=0.01)
    assert forward[0].bytes_written == pytest.approx(activation, rel=0.01)


def test_a_product_from_a_template_has_its_flops() -> None:
    """Before, it was priced by its bytes: 4096 cubed in 32 us, four times the peak of an H100."""
    priced = run("compiled_template.py", steps=0).evaluation.priced
    (found,) = ((one, price) for one, price in zip(priced.trace.signatures, priced.prices) if isinstance(one, Fused))
    kernel, price = found
    assert isinstance(kernel, Fused)
    assert kernel.name.startswith("triton_tem_")
    assert kernel.products == (("bfloat16", 2 * 4096**3),)
    assert kernel.bytes == 3 * 2 * 4096**2
    assert price.duration_ns > 2 * 4096**3 / 989e12 * 1e9


def test_no_kernel_is_left_without_an_operator() -> None:
    job = run("compiled.py")
    assert not [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]
    assert all(job.operator(index) for index in job.work())


def test_products_in_compiled_code_have_shapes() -> None:
    """Two layers: forward, and backward without the gradient of the inputs."""
    job = run("compiled.py")
    layer = 2 * TOKENS * 256 * WIDTH
    assert job.gemm_flops(Phase.FORWARD) == 2 * layer
    assert job.gemm_flops(Phase.BACKWARD) == 3 * layer


def test_host_time_after_a_compiled_dropout_is_counted() -> None:
    """presim's own time is subtracted only once; otherwise the host clock would stand still for a while."""
    trace = run("compiled_dropout.py").trace
    name = np.array([*trace.operators, ""])[trace.columns["operator"].astype(np.int64)]
    products = trace.mask(Kind.WORK, Kind.ALLOC) & (name == "aten::mm")
    blocks_ns = trace.columns["host_ns"][products & trace.mask(Kind.ALLOC)]
    assert len(blocks_ns) >= 24
    assert np.median(blocks_ns) > 0


def test_steps_that_replay_the_compiler_s_graphs_are_steady() -> None:
    """CUDA graphs of forward and backward are recorded in the second step, and do not count as compilation."""
    job = run("compiled.py", "reduce-overhead", steps=5)
    assert job.result.steps.steady
    assert job.result.steps.steady_index >= 2
    layer = 2 * TOKENS * 256 * WIDTH
    assert job.gemm_flops(Phase.FORWARD) == 2 * layer
    assert job.gemm_flops(Phase.BACKWARD) == 3 * layer


def test_autotuned_code_keeps_its_products_and_names_its_fused_kernels() -> None:
    """Autotuners measure nothing here; whatever they choose, products keep their shapes and FLOPs."""
    job = run("autotuned.py")
    layer = 2 * 512 * 256 * 1024
    assert job.gemm_flops(Phase.FORWARD) == 2 * layer
    assert job.gemm_flops(Phase.BACKWARD) == 3 * layer  # the input needs no gradient
    fused = [one for one in job.signatures(job.work(Phase.FORWARD)) if isinstance(one, Fused)]
    gelu = next(one for one in fused if "gelu" in one.name)
    assert (gelu.bytes_read, gelu.bytes_written) == (2 * 512 * 1024, 2 * 512 * 1024)
    assert not [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]


@pytest.mark.long
def test_tuners_make_the_same_choice_in_every_run(tmp_path: Path) -> None:
    """Triton compiles one of three configurations; the script's own tuner sees the predicted times."""
    found = []
    for _ in range(2):
        ended = presim("run", "--quiet", "--gpu", "h100-sxm", "--steps", "0", SCRIPTS / "tuners.py", cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        found.append(json.loads(ended.stdout))
    assert found[0] == found[1]
    assert (found[0]["block"], found[0]["launches"]) == (64, 4)  # the first that works, and the script's three
    small, large = found[0]["products_ms"].values()
    assert large == pytest.approx(8 * small, rel=0.3)
    at_peak = 1e3 * 2 * 4096**3 / 989e12  # ms
    assert at_peak < large < 2.5 * at_peak


def test_a_model_that_is_traced_first_is_captured() -> None:
    """make_fx calls the modules with fake tensors, whose storage cannot be accessed."""
    layer = 2 * 64 * 256 * 512
    assert run("traced.py").gemm_flops(Phase.FORWARD) == 2 * layer


def test_lists_of_tensors_with_symbolic_sizes_are_handled(capfd: pytest.CaptureFixture[str]) -> None:
    """An exception in the operator callback would leave the operator open; PyTorch prints it and continues."""
    job = run("dynamic_shapes.py")
    assert (job.trace.manifest.exit, job.trace.manifest.error) == ("ok", "")
    assert "RecordFunction" not in capfd.readouterr().err


def test_attention_has_its_shapes_whatever_the_layout_of_its_inputs() -> None:
    """In a compiled layer, the template gets queries as a matrix, the result of their product."""
    job = run("flex_layer.py")
    assert (job.trace.manifest.exit, job.trace.manifest.error) == ("ok", "")
    found = [one for one in job.signatures(job.work()) if isinstance(one, Attention)]
    shapes = [(one.direction, one.batch, one.heads, one.kv_heads, one.q_len, one.kv_len, one.causal) for one in found]
    assert shapes == [(direction, 2, 8, 2, 512, 512, True) for direction in ("forward", "backward")]


@pytest.mark.long
def test_ranks_of_a_node_compile_a_graph_once(tmp_path: Path) -> None:
    """Their GPUs have different indices, for which PyTorch would compile forward and backward in each of them."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    script = SCRIPTS / "compiled_ranks.py"
    launch = ("torchrun", "--nproc-per-node", "2", script, tmp_path)
    ended = presim("run", "--quiet", "--gpu", "h100-sxm", "--steps", "0", "--ranks", "all", *launch, **cache)
    assert ended.returncode == 0, ended.stderr
    assert "Failed to reload" not in ended.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sum(one["inductor"].get("fxgraph_cache_miss", 0) for one in found) == 2
    assert sum(one["inductor"].get("fxgraph_cache_hit", 0) for one in found) == 2
    assert sorted(one["aot_autograd"].get("autograd_cache_hit", 0) for one in found) == [0, 1]
