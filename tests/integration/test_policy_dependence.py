"""Programs that read values of a policy back, with collectives that depend on these values or do not.

A case is the body of a step and the expected verdict. Add one by adding a line.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from presim.capture import capture_job
from presim.evaluation.options import RunOptions
from presim.result import Result
from support.captured import evaluated

pytestmark = [pytest.mark.torch_cuda]

PROGRAM = """
import os, torch, torch.distributed as dist, torch.nn.functional as F
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
layer, router = torch.nn.Linear(1024, 1024).cuda(), torch.nn.Linear(1024, 8).cuda()
experts = [torch.nn.Linear(1024, 1024).cuda() for _ in range(8)]
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
weight, losses = experts[0].weight.detach(), []
for _ in range(2):
    x = layer(torch.ones(512, 1024, device="cuda"))
    loss, choice = F.mse_loss(x, x.detach() + 1), router(x).argmax(-1)
    {step}
    loss.backward()
    dist.all_reduce(layer.weight.grad)
    optimizer.step()
"""
A_TO_A = (
    "counts = torch.bincount(choice, minlength=8).view(2, 4).sum(1); arriving = torch.empty_like(counts); "
    "dist.all_to_all_single(arriving, counts); sent, received = counts.tolist(), arriving.tolist(); "
    "dist.all_to_all_single(x.new_empty(sum(received), 1024), x.detach(), received, sent)"
)
MEAN = "mean = loss.detach().clone(); dist.all_reduce(mean)"
DEPENDS, SAME, NOT_TRIED = "Collectives depend on values of the", "called the same collectives", ""
long = functools.partial(pytest.param, marks=pytest.mark.long)
CASES = [
    ("[dist.all_reduce(experts[i].weight.data) for i in choice.unique().tolist()]", DEPENDS),
    long("[dist.all_reduce(experts[i].weight.data) for i in range(8) if (choice == i).any()]", DEPENDS),
    long("[dist.all_reduce(experts[i].bias.data) for i in choice.unique().tolist()]", DEPENDS),
    ("loss.item() < 2 and dist.barrier()", DEPENDS),
    long("losses.append(float(loss)); dist.all_reduce(weight) if losses[-1] > 2 else dist.barrier()", DEPENDS),
    long("x.mean().item() < 0.5 and dist.all_reduce(weight)", DEPENDS),
    long(f"{MEAN}; mean.item() < 4 and dist.barrier()", SAME),
    (A_TO_A, SAME),
    long("[experts[i](x[choice == i]) for i in choice.unique().tolist()]", SAME),
    long("loss.item() < 2 and experts[0](x)", SAME),
    ("print('loss', loss.item())", NOT_TRIED),
    ("losses.append(loss.item()); print(sum(losses) / len(losses))", NOT_TRIED),
    ("experts[0](x)", NOT_TRIED),
]


def result_of(step: str, folder: Path, world_size: int = 2) -> Result:
    script = folder / "train.py"
    script.write_text(PROGRAM.format(step=step))
    return evaluated(script, options=RunOptions(gpu="h100-sxm", world_size=world_size, steps=2)).result


@pytest.mark.parametrize(("step", "verdict"), CASES)
def test_collectives_that_depend_on_values_of_a_policy_are_named(step: str, verdict: str, tmp_path: Path) -> None:
    result = result_of(step, tmp_path)
    tried = [note for note in result.notes if "values that differ by rank" in note]
    assert [verdict in note for note in tried] == ([True] if verdict else [])
    assert bool(result.coverage.dependence) == (verdict == DEPENDS)
    first = DEPENDS if verdict == DEPENDS else "2 ranks: 1 captured, 1 compared over 2 steps and the same"
    assert result.notes[0].startswith(first)
    assert ("for equal values of policies" in "".join(result.notes)) == (verdict == DEPENDS)


def test_the_sentence_names_lines_ranks_and_calls(tmp_path: Path) -> None:
    result = result_of("loss.item() < 2 and dist.barrier()", tmp_path)
    assert result.exit == "ok"
    assert result.coverage.dependence == (
        "Collectives depend on values of the loss policy that the program reads (train.py:12): with values that differ "
        "by rank, rank 0 makes 4 calls on 'default_pg' (ranks 0, 1) and rank 1 2; call 1 is all_reduce of 4 bytes "
        "(train.py:12) on rank 0 and all_reduce of 4194304 bytes (train.py:14) on rank 1. A real run may hang or mix "
        "up data."
    )


def test_a_trial_without_time_is_named_and_leaves_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_job, "_MOST_TRIAL_TO_CAPTURE", 0)
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(step="loss.item() < 2 and experts[0](x)"))
    options = RunOptions(gpu="h100-sxm", world_size=2, steps=2, check_time=0)
    result = evaluated(script, options=options).result
    assert any(
        "could not be tried with values that differ by rank: it took longer than 0 s" in note for note in result.notes
    )
    assert result.step_time_s is not None
    assert not result.coverage.dependence
