"""Device time of a step by module scope, as a tree in which numbered siblings are merged."""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.analysis.time.breakdown import Breakdown
from presim.analysis.time.scopes import merge_numbers
from presim.analysis.time.steps import Step
from presim.engine.timeline import Timeline
from presim.result import OUTSIDE_MODULES, Module
from presim.trace.schema import Kind, Phase, Trace


@dataclasses.dataclass
class _Node:
    """Sums in ns of one merged path, submodules included."""

    total: float = 0
    critical: float = 0
    exclusive: float = 0
    by_phase: dict[int, float] = dataclasses.field(default_factory=dict)
    communication: float = 0
    instances: set[str] = dataclasses.field(default_factory=set)


def by_module(trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown) -> list[Module]:
    """The tree in depth-first order, siblings by their share of the step. Work outside modules comes last."""
    nodes: dict[str, _Node] = {}
    for (scope, phase, is_collective), (nanoseconds, critical) in _sums(trace, timeline, step, breakdown).items():
        path = trace.scopes[scope] if scope >= 0 else ""
        for instance in _with_parents(path):
            node = nodes.setdefault(merge_numbers(instance), _Node())
            node.total += nanoseconds
            node.critical += critical
            node.exclusive += nanoseconds if instance == path else 0
            node.by_phase[phase] = node.by_phase.get(phase, 0) + nanoseconds
            node.communication += nanoseconds if is_collective else 0
            node.instances.add(instance)
    return [_module(path, node) for path, node in _depth_first(nodes)]


def _sums(
    trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown
) -> dict[tuple[int, int, bool], tuple[float, float]]:
    """Device time and critical time by (scope, phase, whether communication), ns."""
    numbers: list[np.ndarray] = []
    spent: list[np.ndarray] = []
    critical: list[np.ndarray] = []
    for part, times in step.spans:
        start, stop, _ = part.indices(len(trace))
        entries = np.flatnonzero(trace.mask(Kind.WORK, Kind.COLLECTIVE)[start:stop]) + start
        scope, phase = (trace.columns[name][entries].astype(np.int64) for name in ("scope", "phase"))
        is_collective = trace.columns["kind"][entries] == Kind.COLLECTIVE
        numbers.append(((scope + 1) * len(Phase) + phase) * 2 + is_collective)
        spent.append(times * (timeline.end_ns - timeline.start_ns)[entries])
        critical.append(breakdown.critical_ns[entries] if part == step.entries else np.zeros(len(entries)))
    number = np.concatenate(numbers)
    durations, shares = (np.bincount(number, weights=np.concatenate(values)) for values in (spent, critical))
    sums = {}
    for bucket in np.flatnonzero(np.bincount(number)).tolist():
        scope_and_phase, collective = divmod(bucket, 2)
        scope_number, phase_number = divmod(scope_and_phase, len(Phase))
        sums[scope_number - 1, phase_number, bool(collective)] = (float(durations[bucket]), float(shares[bucket]))
    return sums


def _with_parents(path: str) -> list[str]:
    """``a.b.c`` to ``[a, a.b, a.b.c]``; a container of numbered modules counts as their parent."""
    parts = path.split(".")
    return [".".join(parts[: index + 1]) for index in range(len(parts))]


def _depth_first(nodes: dict[str, _Node]) -> list[tuple[str, _Node]]:
    children: dict[str, list[str]] = {}
    for path in nodes:
        children.setdefault(path.rpartition(".")[0], []).append(path)
    ordered: list[tuple[str, _Node]] = []

    def visit(parent: str) -> None:
        for path in sorted(children.get(parent, ()), key=lambda path: _sort_key(path, nodes[path])):
            ordered.append((path, nodes[path]))
            visit(path)

    visit("")
    return ordered


def _sort_key(path: str, node: _Node) -> tuple[bool, float, float, str]:
    return path == OUTSIDE_MODULES, -node.critical, -node.total, path


def _module(path: str, node: _Node) -> Module:
    return Module(
        path=path,
        depth=path.count(".") if path != OUTSIDE_MODULES else 0,
        instances=len(node.instances),
        seconds=node.total / 1e9,
        critical_s=node.critical / 1e9,
        self_s=node.exclusive / 1e9,
        forward_s=node.by_phase.get(Phase.FORWARD, 0) / 1e9,
        backward_s=node.by_phase.get(Phase.BACKWARD, 0) / 1e9,
        recompute_s=node.by_phase.get(Phase.RECOMPUTE, 0) / 1e9,
        communication_s=node.communication / 1e9,
    )
