"""Compares results part by part: step time and memory before and after. The parts add up to the whole exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from presim.errors import InputError
from presim.result import Result
from presim.result.comparison import Compared, Comparison, Delta, Difference

SCHEMA_VERSION = 1
HOST, IDLE = "waiting for the host", "idle"
_ROWS = 40  # limit of lists whose rows do not add up to a whole


def compare(results: Sequence[tuple[str, Result]], *, partial: bool = False) -> Comparison:
    """Compare the first of several labelled results with each of the others; ``partial``: more were asked for.

    Raises:
        InputError: fewer than two results, or two of one label.
    """
    if len(results) < 2:
        raise InputError(f"a comparison needs two results, got {len(results)}; name another, or vary one with --with")
    labels = [label for label, _ in results]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"{twice} is named {labels.count(twice)} times; name each result once")
    (_, baseline), *alternatives = results
    return Comparison(
        SCHEMA_VERSION,
        [_compared(label, result) for label, result in results],
        [_difference(label, baseline, result) for label, result in alternatives],
        partial=partial,
    )


def _compared(label: str, result: Result) -> Compared:
    job, tokens = result.job, result.throughput.tokens_per_s
    return Compared(
        label=label,
        script=job.script,
        cluster=job.cluster,
        step_time_s=result.step_time_s,
        step_time_low_s=result.step_time_low_s,
        step_time_high_s=result.step_time_high_s,
        tokens_per_s=tokens,
        tokens_per_s_per_gpu=None if tokens is None else tokens / job.world_size,
        mfu=result.mfu,
        exposed_communication_s=result.time.exposed_communication_s,
        peak_allocated_bytes=result.memory.peak_allocated_bytes,
        peak_reserved_bytes=result.memory.peak_reserved_bytes,
        beyond_allocator_bytes=result.memory.outside_allocator_bytes,
        fits=result.memory.fits,
    )


def _difference(label: str, before: Result, after: Result) -> Difference:
    have_step_times = before.step_time_s is not None and after.step_time_s is not None
    return Difference(
        label=label,
        settings=settings(before, after),
        step_time_change_s=(after.step_time_s or 0.0) - (before.step_time_s or 0.0) if have_step_times else None,
        speedup=_ratio(before.step_time_s, after.step_time_s),
        throughput_ratio=_ratio(after.throughput.tokens_per_s, before.throughput.tokens_per_s),
        overlapping=_overlapping(before, after),
        memory_change_bytes=after.memory.peak_reserved_bytes - before.memory.peak_reserved_bytes,
        step_time=_changes(_step_parts(before), _step_parts(after)) if have_step_times else [],
        phases=_changes(
            {slice_.name: (slice_.seconds, None) for slice_ in before.time.by_phase},
            {slice_.name: (slice_.seconds, None) for slice_ in after.time.by_phase},
        ),
        operators=_changes(_operators(before), _operators(after))[:_ROWS],
        modules=_changes(_modules(before), _modules(after))[:_ROWS],
        collectives=_changes(_collectives(before), _collectives(after))[:_ROWS],
        memory=_changes(_memory(before), _memory(after)),
    )


_Parts = dict[str, tuple[float, int | None]]  # name -> (seconds or bytes, count)


def _changes(before: _Parts, after: _Parts) -> list[Delta]:
    """The parts of both sides, largest change first."""
    deltas = []
    for name in {**before, **after}:
        (old, old_count), (new, new_count) = before.get(name, (0, None)), after.get(name, (0, None))
        if old or new:
            deltas.append(Delta(name, old, new, old_count, new_count))
    return sorted(deltas, key=lambda delta: (-abs(delta.change), -delta.before, delta.name))


def _step_parts(result: Result) -> _Parts:
    """Step time by family of device work, host-bound time and idle time. The parts add up to the step time."""
    parts: _Parts = {family.name: (family.critical_s, family.count) for family in result.families}
    host_s, step_time_s = result.time.host_bound_s, result.step_time_s or 0.0
    idle_s = step_time_s - host_s - sum(seconds for seconds, _ in parts.values())
    return {**parts, HOST: (host_s, None), IDLE: (round(idle_s, 9), None)}


def _operators(result: Result) -> _Parts:
    return {operator.name: (operator.critical_s, operator.count) for operator in result.operators}


def _modules(result: Result) -> _Parts:
    """Modules without their submodules; with the host-bound and idle time they add up to the step time."""
    own_s = {module.path: module.critical_s for module in result.modules}
    for module in result.modules:
        if (parent := module.path.rpartition(".")[0]) in own_s:
            own_s[parent] -= module.critical_s
    return {module.path: (max(own_s[module.path], 0.0), module.instances) for module in result.modules}


def _collectives(result: Result) -> _Parts:
    parts: _Parts = {}
    for row in result.collectives:
        name = f"{row.kind} · {row.group} ({row.group_size})"
        seconds, count = parts.get(name, (0.0, 0))
        parts[name] = (seconds + row.exposed_s, (count or 0) + row.count)
    return parts


def _memory(result: Result) -> _Parts:
    return {category.name: (category.bytes, category.blocks) for category in result.memory.by_category}


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over and under else None


def _overlapping(before: Result, after: Result) -> bool | None:
    bounds_s = (before.step_time_low_s, before.step_time_high_s, after.step_time_low_s, after.step_time_high_s)
    if any(bound_s is None for bound_s in bounds_s):
        return None
    low, high, other_low, other_high = (bound_s or 0.0 for bound_s in bounds_s)
    return low <= other_high and other_low <= high


def settings(before: Result, after: Result) -> list[str]:
    """Settings in which two jobs differ, as ``name: before -> after``."""
    return [f"{name}: {old} -> {new}" for name, old, new in _named_settings(before, after) if old != new]


def _named_settings(before: Result, after: Result) -> Iterable[tuple[str, str, str]]:
    first, second = before.job, after.job
    yield "script", first.script, second.script
    yield "GPU", first.gpu, second.gpu
    for name, old, new in (
        ("nodes", first.nodes, second.nodes),
        ("GPUs per node", first.gpus_per_node, second.gpus_per_node),
        ("rank", first.rank, second.rank),
        ("parameters", first.parameters, second.parameters),
        ("model FLOPs of the rank", before.flops.model, after.flops.model),
    ):
        yield name, _number_text(old), _number_text(new)
    for kind, old_names, new_names in (
        ("version of", first.versions, second.versions),
        ("policy", before.policies, after.policies),
    ):
        for name in sorted({*old_names, *new_names}):
            yield f"{kind} {name}", old_names.get(name, "none"), new_names.get(name, "none")
    yield "end", before.exit, after.exit


def _number_text(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
