"""Jobs that are extended equal captures with so many micro-batches, but for work on all micro-batches together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from presim.composition.replan.micro_batches import with_micro_batches
from presim.errors import InputError
from presim.evaluation.options import ReplanOptions, RunOptions
from presim.trace.schema import Trace
from presim.verbs.replan import replan_and_evaluate
from presim.verbs.run import run_and_evaluate
from support.captured import EXAMPLES, SCRIPTS, evaluated
from support.replanned import broken_rules, calls_that_differ, live_blocks

pytestmark = pytest.mark.torch_cuda
megatron = pytest.mark.needs("megatron.core")


@dataclasses.dataclass(frozen=True)
class Case:
    """A program with two numbers of micro-batches, and the operators whose calls depend on their number."""

    command: str  # {}: the number
    captured: int
    extended: int
    world_size: int = 2
    differing: frozenset[str] = frozenset()
    marks: tuple[pytest.MarkDecorator, ...] = ()


CASES = [
    Case("accumulates.py fsdp {}", 5, 8),
    Case("accumulates.py ddp {}", 5, 11),
    Case("accumulates.py checkpoint {}", 4, 9),
    Case("accumulates.py workers {}", 5, 8),
    Case("accumulates.py larger_first {}", 5, 8),
    Case("accumulates.py outputs {}", 5, 9),
    Case(
        "megatron_gpt.py --model tiny --pipeline-parallel 2 --sequence 512 --steps 2 --micro-batches {}",
        4,
        6,
        marks=(megatron, pytest.mark.long),
    ),
]


def captured(case: Case, micro_batches: int) -> list[Trace]:
    name, *args = case.command.format(micro_batches).split()
    script = EXAMPLES / name if (EXAMPLES / name).exists() else SCRIPTS / name
    options = RunOptions(gpu="h100-sxm", world_size=case.world_size, checks=0, steps=0)
    evaluation = evaluated(script, *args, options=options)
    return [evaluation.ranks[rank].trace for rank in sorted(evaluation.ranks)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.command, marks=case.marks) for case in CASES])
def test_an_extended_job_is_the_one_with_so_many_micro_batches(case: Case) -> None:
    """Calls of steps in their order with what they refer to, live blocks after steps, and facts about steps."""
    traces, wanted = captured(case, case.captured), captured(case, case.extended)
    extended, _ = with_micro_batches(traces, case.extended)
    for before, trace, other in zip(traces, extended, wanted, strict=True):
        assert broken_rules(before, trace) == []
        assert len(trace.steps()) == len(other.steps()) >= 2
        for step in range(len(trace.steps())):
            assert set(calls_that_differ(trace, other, step)) <= case.differing
        assert [sum(live.values()) for live in live_blocks(trace)] == [
            sum(live.values()) for live in live_blocks(other)
        ]
        assert [(phase.kind, phase.runs) for phase in trace.manifest.step.phases] == [
            (phase.kind, phase.runs) for phase in other.manifest.step.phases
        ]
        if trace.manifest.step.inputs:
            assert trace.manifest.step.inputs == other.manifest.step.inputs


def test_passes_that_do_not_alternate_are_refused() -> None:
    """How many activations are alive depends on the number of micro-batches then."""
    traces = captured(Case("accumulates.py forward_first {}", 5, 9), 5)
    with pytest.raises(InputError, match="Steps that run all forward passes first cannot be extended"):
        with_micro_batches(traces, 9)


@pytest.mark.long
def test_four_stages_of_pytorch_s_schedule_take_as_long_as_six_when_extended(tmp_path: Path) -> None:
    """Its stages learn shapes before the first step, and hold a message until the pipeline drains."""
    command = [str(SCRIPTS / "pipeline.py"), "{stages}", "24"]
    figures = {}
    for stages in (4, 6):
        words = [word.format(stages=stages) for word in command]
        options = RunOptions(gpu="h100-sxm", world_size=stages, host_time=False, save=tmp_path / str(stages))
        figures[stages] = run_and_evaluate(words, options).result.step_time_s
    replanned = replan_and_evaluate(tmp_path / "4", ReplanOptions(pipeline=6, micro_batches=24, host_time=False)).result
    assert replanned.step_time_s == pytest.approx(figures[6], rel=1e-6)
    assert any("reserved memory is too small" in note.lower() for note in replanned.notes)
