"""Compute time of a step by phase of the program."""

from __future__ import annotations

from presim.analysis.time.breakdown import Breakdown
from presim.analysis.time.steps import Step
from presim.result import Slice
from presim.trace.schema import Kind, Phase, Trace


def by_phase(trace: Trace, breakdown: Breakdown, step: Step) -> list[Slice]:
    """Critical time of kernels by phase, in order of the phases in a step, without empty phases.

    The sum is the compute time plus exposed copies.
    """
    work = trace.mask(Kind.WORK)
    phase = trace.columns["phase"]
    slices = []
    for member in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER):
        spent = float(breakdown.critical_ns[work & (phase == member)].sum())
        if spent >= 0.5:
            slices.append(Slice(member.name.lower(), spent / 1e9, spent / max(step.duration_ns, 1)))
    return slices
