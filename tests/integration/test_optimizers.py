"""Traffic, memory and launches of each optimizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.trace.schema import Category, Phase
from presim.trace.signatures import MemoryBound
from support import command
from support.captured import Job, run

PARAMETERS = 16 * (512 * 512 + 512)
SIZE = 4 * PARAMETERS

pytestmark = pytest.mark.torch_cuda


def moved(job: Job) -> tuple[float, float]:
    """Bytes read and written by the optimizer's kernels, relative to the model's size."""
    work = [one for one in job.signatures(job.work(Phase.OPTIMIZER)) if isinstance(one, MemoryBound)]
    return sum(one.bytes_read for one in work) / SIZE, sum(one.bytes_written for one in work) / SIZE


@pytest.mark.parametrize(
    ("arguments", "reads", "writes"),
    [
        (("Adam", "fused"), 4, 3),  # parameters, gradients, two moments; all but the gradients
        (("AdamW", "fused"), 4, 3),
        (("SGD", "fused"), 3, 2),  # parameters, gradients, momentum
        # lerp 2, mul 1, addcmul 3, sqrt 1, two scalings 2, addcdiv 3: one kernel each
        (("Adam", "foreach"), 12, 7),
        (("SGD", "foreach"), 5, 3),  # momentum: mul 1, add 2; parameters: add 2
    ],
)
def test_a_step_has_the_traffic_of_its_kernels(arguments: tuple[str, ...], reads: int, writes: int) -> None:
    assert moved(run("optimizers.py", *arguments)) == (
        pytest.approx(reads, rel=0.01),
        pytest.approx(writes, rel=0.01),
    )


def test_capturable_moves_a_little_more_than_foreach() -> None:
    """Its step counts are on the device, and it divides where foreach multiplies by a host scalar."""
    foreach, capturable = (sum(moved(run("optimizers.py", "Adam", flag))) for flag in ("foreach", "capturable"))
    assert foreach <= capturable < 1.6 * foreach


@pytest.mark.parametrize("arguments", [("Adam", "fused"), ("Adam", "foreach"), ("Adam", "capturable"), ("SGD",)])
def test_states_have_their_memory_category(arguments: tuple[str, ...]) -> None:
    """Two moments for Adam, one momentum for SGD; parameters and gradients unchanged."""
    held = run("optimizers.py", *arguments).held_after_step()
    moments = 1 if arguments[0] == "SGD" else 2
    assert held[Category.PARAMETER] == pytest.approx(SIZE, rel=0.05)
    assert held[Category.GRADIENT] == pytest.approx(SIZE, rel=0.05)
    assert held[Category.OPTIMIZER_STATE] == pytest.approx(moments * SIZE, rel=0.05)


def test_a_fused_step_is_the_fastest() -> None:
    """It reads its state once; foreach reads it once per operation."""
    fused, foreach = (run("optimizers.py", "Adam", flag).seconds(Phase.OPTIMIZER) for flag in ("fused", "foreach"))
    assert fused < foreach


_LBFGS = """
import torch
import torch.nn as nn

model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=6, line_search_fn={search!r})
inputs, targets = torch.randn(2, 64, 256, device="cuda")
evaluations = 0

def closure():
    global evaluations
    evaluations += 1
    optimizer.zero_grad()
    loss = ((model(inputs) - targets) ** 2).mean()
    loss.backward()
    return loss

for step in range(3):
    optimizer.step(closure)
print("evaluations", evaluations, optimizer.param_groups[0]["tolerance_change"])
point = torch.zeros(2, device="cuda", requires_grad=True)
small = torch.optim.LBFGS([point], max_iter=50)

def distance():
    small.zero_grad()
    loss = ((point - torch.tensor([1.0, 2.0], device="cuda")) ** 2).sum()
    loss.backward()
    return loss

small.step(distance)
print("minimum", [round(value, 3) for value in point.tolist()])
"""


@pytest.mark.parametrize(("search", "evaluations"), [(None, 6), ("strong_wolfe", 8)])
def test_a_step_of_lbfgs_runs_to_its_limit(tmp_path: Path, search: str | None, evaluations: int) -> None:
    """Policies' values do not converge; the batch counts once. Gradients that are computed converge as they do."""
    (tmp_path / "fit.py").write_text(_LBFGS.format(search=search))
    words = ["run", "--gpu", "h100-sxm", "--steps", "0", "--json", "r.json", "fit.py"]
    ended = command.presim(*words, cwd=tmp_path)
    assert f"evaluations {3 * evaluations} 1e-09" in ended.stdout, ended.stderr
    assert "minimum [1.0, 2.0]" in ended.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["throughput"]["samples_per_s"] * result["step_time_s"] == pytest.approx(64)
    assert any("they end at max_iter=6 or max_eval=7." in note for note in result["notes"])


@pytest.mark.needs("deepspeed")
def test_fused_adam_of_deepspeed_needs_no_toolkit(tmp_path: Path) -> None:
    """The optimizer that DeepSpeed makes of ``"type": "AdamW"``; presim's machines have no nvcc that compiles it."""
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    }
    (tmp_path / "train.py").write_text(
        "import deepspeed, torch\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])\n"
        f"engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={config})\n"
        "for _ in range(4):\n"
        "    loss = engine(torch.randn(2, 512, device=engine.device, dtype=torch.bfloat16)).float().pow(2).mean()\n"
        "    engine.backward(loss)\n"
        "    engine.step()\n"
    )
    words = ["run", "--gpu", "h100-sxm", "--json", "r.json", "train.py"]
    ended = command.presim(*words, cwd=tmp_path, CUDA_HOME=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    operators = json.loads((tmp_path / "r.json").read_text())["operators"]
    assert [operator["count"] for operator in operators if operator["name"] == "aten::_fused_adamw_"] == [1]
