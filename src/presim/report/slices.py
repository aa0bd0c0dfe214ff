"""Named intervals of a timeline for viewers: steps, phases, modules, host waits, and work of streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec
import numpy as np

from presim.analysis.time.steps import TraceSteps
from presim.cost.price import Origin, PricedTrace
from presim.engine.timeline import Timeline
from presim.trace.collective import Collective, Splits
from presim.trace.schema import WAITS, Kind, Phase, Trace
from presim.trace.signatures import Signature, family

Details = dict[str, str | int | float]


@dataclasses.dataclass(frozen=True)
class Slice:
    """A named interval. Slices of one track are nested or disjoint."""

    name: str
    start_ns: int
    end_ns: int
    details: Details = dataclasses.field(default_factory=dict)
    flows: tuple[int, ...] = ()


def step_slices(steps: TraceSteps) -> list[Slice]:
    """One slice for each step."""
    return [
        Slice(f"step {index}" if steps.counted else "run", step.start_ns, step.end_ns)
        for index, step in enumerate(steps.steps)
    ]


def host_slices(trace: Trace, timeline: Timeline) -> list[Slice]:
    """Waits of the host."""
    waits = trace.mask(*WAITS) & (timeline.end_ns > timeline.start_ns)
    return [
        Slice(f"wait: {Kind(kind).name.lower()}", start, end)
        for kind, start, end in zip(
            trace.columns["kind"][waits].tolist(), timeline.start_ns[waits].tolist(), timeline.end_ns[waits].tolist()
        )
    ]


def streams(trace: Trace, timeline: Timeline) -> list[tuple[int, str]]:
    """Streams with device work and their names, in ascending order."""
    device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    used = np.unique(trace.columns["stream"][device]).tolist()
    talks = set(np.unique(trace.columns["stream"][trace.mask(Kind.COLLECTIVE)]).tolist())
    main = main_stream(trace, timeline)
    remarks = dict.fromkeys(talks, " (communication)") | {main: " (compute)"}
    return [(stream, f"stream {stream}{remarks.get(stream, '')}") for stream in used]


def main_stream(trace: Trace, timeline: Timeline) -> int:
    """The stream with the most kernel time."""
    work = trace.mask(Kind.WORK)
    if not work.any():
        return 0
    durations = (timeline.end_ns - timeline.start_ns)[work]
    return int(np.argmax(np.bincount(trace.columns["stream"][work], weights=durations)))


def stream_slices(
    priced: PricedTrace, timeline: Timeline, stream: int, flows: dict[int, tuple[int, ...]]
) -> list[Slice]:
    """The device work of one stream; ``flows``: the result of `find_flows`."""
    trace = priced.trace
    entries = np.flatnonzero(trace.mask(Kind.WORK, Kind.COLLECTIVE) & (trace.columns["stream"] == stream))
    details = [details_of(trace, priced, index) for index in range(len(trace.signatures))]
    start, end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
    columns = [trace.columns[name].tolist() for name in ("signature", "operator", "scope", "phase")]
    slices = []
    for entry in entries.tolist():
        signature, operator, scope, phase = (column[entry] for column in columns)
        name = _name(trace.signatures[signature], trace.operators[operator] if operator >= 0 else "")
        about = {**details[signature], "phase": Phase(phase).name.lower()}
        if scope >= 0:
            about["module"] = trace.scopes[scope]
        slices.append(Slice(name, start[entry], end[entry], about, flows.get(entry, ())))
    return slices


def phase_slices(trace: Trace, timeline: Timeline) -> list[Slice]:
    """One slice for each run of kernels of the same phase on the main stream."""
    entries = _main_work(trace, timeline)
    paths = [(Phase(phase).name.lower(),) for phase in trace.columns["phase"][entries].tolist()]
    return _nest(paths, timeline.start_ns[entries].tolist(), timeline.end_ns[entries].tolist())


def module_slices(trace: Trace, timeline: Timeline) -> list[Slice]:
    """The module tree as executed by the main stream, one slice per visit of a module."""
    entries = _main_work(trace, timeline)
    phases = trace.columns["phase"][entries].tolist()
    scopes = trace.columns["scope"][entries].tolist()
    paths = [
        (Phase(phase).name.lower(), *(trace.scopes[scope].split(".") if scope >= 0 else ()))
        for phase, scope in zip(phases, scopes)
    ]
    return _nest(paths, timeline.start_ns[entries].tolist(), timeline.end_ns[entries].tolist())


def _main_work(trace: Trace, timeline: Timeline) -> np.ndarray:
    """Kernels of the main stream with a known phase, in order."""
    on_main = trace.columns["stream"] == main_stream(trace, timeline)
    return np.flatnonzero(trace.mask(Kind.WORK) & on_main & (trace.columns["phase"] != Phase.OTHER))


def _nest(paths: Iterable[tuple[str, ...]], starts_ns: list[int], ends_ns: list[int]) -> list[Slice]:
    """One slice for each interval in which a prefix of the path is constant, parents before children."""
    names: list[str] = []
    begins: list[int] = []
    finishes: list[int] = []
    open_parts: list[tuple[str, int]] = []  # name, index into the lists above
    for path, start, end in zip(paths, starts_ns, ends_ns):
        shared = 0
        while shared < min(len(open_parts), len(path)) and open_parts[shared][0] == path[shared]:
            shared += 1
        del open_parts[shared:]
        for name in path[shared:]:
            open_parts.append((name, len(names)))
            names.append(name)
            begins.append(start)
            finishes.append(end)
        for _, index in open_parts:
            finishes[index] = end
    return [Slice(*fields) for fields in zip(names, begins, finishes)]


def details_of(trace: Trace, priced: PricedTrace, index: int) -> Details:
    """What a viewer says of work with a signature: its shape and type, its group, and where its price comes from."""
    signature, price = trace.signatures[index], priced.prices[index]
    details: Details = {"family": family(signature)}
    for key, value in msgspec.structs.asdict(signature).items():
        if isinstance(value, Splits):
            details |= {"bytes_leaving": value.leaving, "bytes_arriving": value.arriving}
        elif value not in ("", None) and value is not False:
            details[key] = str(value) if isinstance(value, (tuple, bool)) else value
    if isinstance(signature, Collective) and 0 <= signature.group < len(trace.manifest.groups):
        group = trace.manifest.groups[signature.group]
        details |= {"group": group.name, "group_size": group.size}
    return details | {
        "price_origin": Origin(price.origin).name.lower(),
        "price_uncertainty": price.uncertainty,
        "bound": price.bound,
    }


def _name(signature: Signature, operator: str) -> str:
    if isinstance(signature, Collective):
        return signature.kind
    return operator or family(signature)
