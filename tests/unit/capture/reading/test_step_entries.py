"""Positions in a trace of moments that are given in records of its log."""

from __future__ import annotations

import dataclasses

import msgspec

from presim.capture.reading.step_entries import with_entries
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Kind, StepFacts, StepPhase
from presim.trace.signatures import Gemm
from support.capture_logs import LogBuilder

GEMM = Gemm(64, 64, 64, 1, "bfloat16")


def test_steps_and_merged_collectives_do_not_move_phases() -> None:
    """The log has an optimizer's step and two collectives more before the phase ends."""
    log = LogBuilder()
    for kind in (Kind.WORK, Kind.STEP, Kind.COLLECTIVE, Kind.COLLECTIVE, Kind.WORK, Kind.WORK):
        log.record(kind)
    build = TraceBuilder()
    for _ in range(3):
        build.work(GEMM)
    facts = StepFacts(begin=3, phases=tuple(StepPhase(0, end, "update", "a.py:1") for end in (2, 5, 6, 9)))
    manifest = msgspec.structs.replace(default_manifest(), step=facts)
    trace = with_entries(dataclasses.replace(build.trace(), manifest=manifest), log.log())
    assert trace.manifest.step.begin == 1
    assert [phase.end for phase in trace.manifest.step.phases] == [1, 2, 3, 3]
