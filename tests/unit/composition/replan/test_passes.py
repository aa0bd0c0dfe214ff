"""Passes of an interleaved stage begin with their layers, whatever these are and whatever is posted before them."""

from __future__ import annotations

import msgspec
import pytest

from presim.composition.replan import passes
from presim.composition.replan.cycles import NotPeriodicError, program_calls
from presim.composition.replan.interleaved_order import InterleavedOrder
from presim.composition.replan.object_names import definitions
from presim.composition.replan.passes import find_interleaved_passes, find_passes
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.collective import Collective
from presim.trace.schema import Group, Kind, Phase, Trace
from support.pipelines import Pipeline, kernel

_MANIFEST = msgspec.structs.replace(default_manifest(), world_size=2, groups=(Group("pp", (0, 1), 2),))
_RECEIVE = Collective(kind="recv", bytes=4096, dtype="bfloat16", group=0, peer=1)
_SEND = msgspec.structs.replace(_RECEIVE, kind="send")


def test_micro_batches_are_counted_by_messages_where_no_cycle_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a first step, in which functions are compiled."""
    traces = Pipeline(4, 9).traces()
    calls = [program_calls(trace, definitions(trace)) for trace in traces]
    expected = [[step.order for step in find_passes(*pair)] for pair in zip(traces, calls)]

    def refuse(*arguments: object) -> None:
        raise NotPeriodicError("no forward and backward pass follow others like them")

    monkeypatch.setattr(passes, "find_cycle", refuse)
    assert [[step.order for step in find_passes(*pair)] for pair in zip(traces, calls)] == expected


def test_a_chunk_that_does_nothing_that_others_do_has_passes_of_its_own() -> None:
    """As the last of DeepSeek-V3's 32 chunks, which predicts a second token and has no other layers."""
    order = InterleavedOrder.of(micro_batches=4, chunks=2, stages=2, stage=1)
    build = TraceBuilder(_MANIFEST)
    for turn in order.passes():
        phase = Phase.FORWARD if turn.is_forward else Phase.BACKWARD
        scopes = ("attention", "mlp") if turn.micro_batch // 2 % 2 == 0 else ("prediction", "loss")
        for scope in scopes:
            build.work(kernel(5), scope=scope, phase=phase)
        build.work(_SEND, stream=2, phase=phase)
        build.wait(build.record(stream=2), stream=0)
    build.step()
    scopes = [scope for scope, _ in _starts(build.trace(), order)]
    expected = ["prediction" if turn.micro_batch // 2 % 2 else "attention" for turn in order.passes()]
    assert scopes == expected


def _starts(trace: Trace, order: InterleavedOrder) -> list[tuple[str, Kind]]:
    """Scope and kind of the call that each pass begins with."""
    calls = program_calls(trace, definitions(trace))
    (step,) = find_interleaved_passes(trace, calls, [order])
    entries = calls[step.starts].tolist()
    return [(trace.scopes[trace.columns["scope"][entry]], Kind(trace.columns["kind"][entry])) for entry in entries]


def test_a_pass_does_not_begin_with_messages_that_are_posted_in_its_phase() -> None:
    """As Megatron's without tensor parallelism: nothing of another phase lies between them and the layers."""
    order = InterleavedOrder.of(micro_batches=4, chunks=2, stages=2, stage=0)
    build = TraceBuilder(_MANIFEST)
    for number, turn in enumerate(order.passes()):
        phase = Phase.FORWARD if turn.is_forward else Phase.BACKWARD
        if number % 3 == 0:
            build.work(_RECEIVE, stream=1, phase=phase)
        build.work(kernel(5), scope="attention", phase=phase)
        build.work(kernel(7), scope="mlp", phase=phase)
        build.work(_SEND, stream=2, phase=phase)
        build.wait(build.record(stream=2), stream=0)
    build.step()
    assert _starts(build.trace(), order) == [("attention", Kind.WORK)] * len(list(order.passes()))
