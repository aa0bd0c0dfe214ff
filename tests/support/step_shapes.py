"""Traces whose steps have phases."""

from __future__ import annotations

import dataclasses

import msgspec

from presim.trace.builder import TraceBuilder
from presim.trace.schema import StepFacts, StepPhase, Trace
from presim.trace.signatures import Gemm

CRITIC, GENERATOR, EVALUATION = 512, 2048, 8192  # rows of a product


def gemm(rows: int) -> Gemm:
    """A product that takes longer the more rows it has."""
    return Gemm(rows, 4096, 4096, 1, "bfloat16")


def critic_and_generator(*, evaluated_step: int = -1) -> Trace:
    """Three updates of a critic and one of a generator in each of five steps; one of them evaluates before."""
    build, phases = TraceBuilder(), list[StepPhase]()
    parts = ((EVALUATION, "call", 1), (CRITIC, "loop", 3), (GENERATOR, "update", 1))
    for step in range(5):
        for rows, kind, runs in parts[step != evaluated_step :]:
            for _ in range(runs):
                build.work(gemm(rows))
            phases.append(StepPhase(step, len(build.trace()), kind, f"/home/me/gan.py:{rows}", runs))
        build.step()
    trace = build.trace()
    manifest = msgspec.structs.replace(trace.manifest, step=StepFacts(phases=tuple(phases)))
    return dataclasses.replace(trace, manifest=manifest)
