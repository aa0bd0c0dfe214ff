"""Composed jobs beside captured ones: the plan is read back from the trace, and differences are named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest

from presim import hardware
from presim.cli import main
from presim.composition.capture_comparison import ComparedFigure, compare
from presim.composition.compose import compose
from presim.composition.graph.take import config_file, named_models
from presim.composition.like import plan_of
from presim.composition.plan import Plan
from presim.trace import job_store
from presim.trace.schema import Trace
from presim.trace.signatures import Collective
from support.models import llama

SOURCES = ("https://huggingface.co/", "https://github.com/pytorch/torchtune/", "Brown et al.")
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=16)


def trace(plan: Plan) -> Trace:
    return compose(llama(), plan, CLUSTER).traces[0]


@pytest.mark.torch_cuda
@pytest.mark.parametrize(
    "plan",
    [
        Plan(sequence=512, attention="cudnn"),
        Plan(sequence=256, micro_batch=2, recompute="full", attention="flash"),
        Plan(sequence=512, tensor=2, attention="cudnn"),
        Plan(sequence=512, optimizer="none", clip=False, attention="cudnn"),
    ],
    ids=str,
)
def test_the_plan_is_read_back_from_the_trace(plan: Plan) -> None:
    fields, read = msgspec.structs.asdict(plan), plan_of(trace(plan), {})
    assert {name: fields[name] for name in read} == read


@pytest.mark.torch_cuda
def test_a_job_agrees_with_itself_and_differences_are_counted() -> None:
    plain, again = trace(Plan(sequence=512)), trace(Plan(sequence=512, recompute="full"))
    assert compare({0: plain}, {0: plain}).same_work
    found = compare({0: again}, {0: plain}, [ComparedFigure("step time", "s", 2.0, 1.0)])
    assert {one.kind for one in found.differences} == {"attention", "product"}
    assert next(one for one in found.differences if one.kind == "attention").captured == 2 * 4
    assert found.error("step time") == -0.5
    assert found.turns == ()


@pytest.mark.torch_cuda
def test_collectives_in_another_order_are_named() -> None:
    plain = trace(Plan(sequence=512))
    signatures = plain.columns["signature"].copy()
    collectives = [
        place
        for place in range(*plain.steps()[-1].indices(len(signatures)))
        if signatures[place] >= 0 and isinstance(plain.signatures[signatures[place]], Collective)
    ]
    signatures[collectives] = signatures[collectives[::-1]]
    (turn,) = compare(
        {0: plain}, {0: dataclasses.replace(plain, columns={**plain.columns, "signature": signatures})}
    ).turns
    assert (turn.index, turn.captured == turn.composed) == (0, False)


@pytest.mark.torch_cuda
def test_compose_like_a_saved_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the job's own plan and cluster all work is equal; with another recomputation it is not."""
    from presim.composition.graph import graph_files as graphs

    graph, folder = str(tmp_path / "g"), str(tmp_path / "job")
    graphs.save(llama(), graph)
    job = compose(llama(), Plan(sequence=512), CLUSTER)
    job_store.save(list(job.traces), folder, stands_for=job.stands_for)
    assert main.run(["compose", graph, "--like", folder]) == 0
    assert "Device work of the last step is equal: 8 attention calls" in capsys.readouterr().out
    assert main.run(["compose", graph, "--like", folder, "--recompute", "full", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"]


def test_named_models_have_a_source() -> None:
    assert {"llama3-8b", "llama3-405b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3"} <= set(named_models())
    for name in named_models():
        config = json.loads((config_file(name) or Path()).read_bytes())
        assert config["presim_source"].startswith(SOURCES)
        assert config["architectures"]
