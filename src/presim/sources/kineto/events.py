"""Read a Chrome trace of PyTorch's profiler: its events by category, times in ns since the first of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from presim.errors import InputError
from presim.system.files import MOST_DIGITS, MOST_INTEGER, MOST_UNSIGNED, FormatError, decode_json, read_profile
from presim.trace.repetition import find_repetition
from presim.units import quantities

STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
WHOLE = "the whole profile"  # the step of a profile that marks none
RECURRING = "what the profile repeats"  # likewise, where the same kernels are launched again and again
_MOST_US = 86_400e6
_Value = TypeVar("_Value")
_FORMAT = "a Chrome trace that PyTorch's profiler wrote (prof.export_chrome_trace, or a trace handler)"


class Event(msgspec.Struct, frozen=True):
    """One complete event (``ph`` X)."""

    name: str
    cat: str
    tid: int | str
    start_ns: int
    end_ns: int
    args: dict[str, Any]

    def number(self, key: str, default: int = -1) -> int:
        """An argument as a whole number; the default where it is none."""
        return whole_number(self.args.get(key, default), default)


def whole_number(value: object, default: int) -> int:
    """A 64-bit number, which profiles write with or without quotes; the default for anything else."""
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) <= MOST_DIGITS:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > MOST_INTEGER:
        return default
    return value


class _Raw(msgspec.Struct, frozen=True):
    ph: str = ""
    cat: str = ""
    name: str = ""
    tid: int | str = 0
    ts: float | int = 0
    dur: float | int = 0
    args: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True):
    traceEvents: list[_Raw]
    deviceProperties: list[dict[str, Any]] = []
    distributedInfo: dict[str, Any] = {}
    presim: dict[str, Any] = {}  # of presim's own exports: the cluster's parts


@dataclasses.dataclass(frozen=True)
class Profile:
    """One rank's profile."""

    path: Path
    rank: int | None  # None: the file does not say
    world_size: int | None
    device: str  # the GPU as its driver calls it; empty: unknown
    groups: list[dict[str, Any]]  # process groups as PyTorch lists them
    written_by: dict[str, Any]
    steps: dict[int, Event]  # by number
    calls: list[Event]  # of the CUDA runtime and driver, by start
    work: list[Event]  # kernels, copies and memsets, by start
    syncs: list[Event]  # of streams and hosts, where the profiler recorded them
    operators: dict[int, Event]  # by External id
    updates: list[Event]  # of the optimizer
    remarks: tuple[str, ...] = ()  # sentences about what of the file is not replayed


def read(path: Path) -> Profile:
    """Read one file, packed or not.

    Raises:
        InputError: it cannot be read, is no such trace, or a time in it cannot be.
    """
    file = _decode(read_profile(path), path)
    first = min((event.ts for event in file.traceEvents if event.ph == "X"), default=0)
    events = [_event(raw, first, path) for raw in file.traceEvents if raw.ph == "X"]
    by_category: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: (event.start_ns, event.end_ns)):
        by_category.setdefault(event.cat.lower(), []).append(event)
    info = file.distributedInfo
    for key, quantity in (("rank", quantities.RANK), ("world_size", quantities.GPUS)):
        if isinstance(info.get(key), int):
            quantity.check(info[key], f"{path}: {key}")
    device = file.deviceProperties[0].get("name", "") if file.deviceProperties else ""
    return Profile(
        path=path,
        rank=_integer_or_none(info.get("rank")),
        world_size=_integer_or_none(info.get("world_size")),
        device=str(device),
        groups=[group for group in info.get("pg_config") or [] if isinstance(group, dict)],
        written_by=file.presim,
        steps=_steps(by_category) or _repeated_steps(by_category) or _whole_profile(by_category),
        calls=_events_of(by_category, LAUNCHES),
        work=_events_of(by_category, DEVICE),
        syncs=by_category.get("cuda_sync", []),
        operators={
            event.number("External id"): event
            for event in by_category.get("cpu_op", [])
            if event.number("External id") >= 0
        },
        updates=[event for event in by_category.get("user_annotation", []) if event.name.startswith("Optimizer.step#")],
    )


def presim_argument(event: Event, key: str, kind: type[_Value]) -> _Value:
    """A value that presim put into an argument of its own exports, as JSON.

    Raises:
        InputError: something else stands there.
    """
    try:
        return decode_json(str(event.args[key]), kind)
    except FormatError as error:
        raise InputError(f"the {key} of {event.name!r} is damaged ({error}); export the profile again") from error


def is_profile(path: Path) -> bool:
    """Whether a file looks like a Chrome trace, by its name."""
    return path.is_file() and path.name.endswith((".json", ".json.gz"))


def _decode(data: bytes, path: Path) -> _File:
    try:
        return decode_json(data, _File, most_integer=MOST_UNSIGNED)
    except FormatError as error:
        if isinstance(error.__cause__, msgspec.ValidationError):
            raise InputError(f"{path} is not {_FORMAT}: {error}") from error
        raise InputError(f"{path} is cut short or damaged ({len(data):,} bytes: {error}); copy it again") from error


def _event(raw: _Raw, first: float, path: Path) -> Event:
    if raw.dur < 0:
        raise InputError(
            f"{path}: {raw.name!r} at {raw.ts:.3f} us has a negative duration ({raw.dur:g} us); "
            "record the profile again"
        )
    if not (0 <= raw.ts - first <= _MOST_US and raw.dur <= _MOST_US):
        raise InputError(
            f"{path}: {raw.name!r} at {raw.ts:g} us lasts {raw.dur:g} us, and the file begins at {first:g} us: no "
            "profile spans more than a day; record it again"
        )
    start = round((raw.ts - first) * 1000)
    return Event(raw.name, raw.cat, raw.tid, start, start + round(raw.dur * 1000), raw.args)


def _events_of(by_category: dict[str, list[Event]], names: tuple[str, ...]) -> list[Event]:
    events = [event for name in names for event in by_category.get(name, [])]
    return sorted(events, key=lambda event: (event.start_ns, event.end_ns))


def _steps(by_category: dict[str, list[Event]]) -> dict[int, Event]:
    """The steps on the host; those on the GPU's tracks, where PyTorch repeats them, if there are no others."""
    for category in ("user_annotation", "python_function", "gpu_user_annotation"):
        steps = {int(match[1]): event for event in by_category.get(category, []) if (match := STEP.search(event.name))}
        if steps:
            return steps
    return {}


def _repeated_steps(by_category: dict[str, list[Event]]) -> dict[int, Event]:
    """Steps by the kernels that are launched again and again, on the thread of the first call; none if none are."""
    calls, work = _events_of(by_category, LAUNCHES), _events_of(by_category, DEVICE)
    names = {number: event.name for event in work if (number := event.number("correlation")) >= 0}
    launches = [call for call in calls if call.number("correlation") in names]
    numbers: dict[str, int] = {}
    keys = [numbers.setdefault(names[call.number("correlation")], len(numbers)) for call in launches]
    repetition = find_repetition(np.array(keys, np.int64))
    if repetition is None:
        return {}
    launch_counts = repetition.ends().tolist()  # up to the end of each repeat
    starts_ns = [launches[index].start_ns for index in (repetition.start, *launch_counts[:-1])]
    last_ns = max(call.end_ns for call in launches[: launch_counts[-1]])
    ends_ns = [*starts_ns[1:], last_ns]
    return {
        number: Event(RECURRING, "", calls[0].tid, start_ns, end_ns, {})
        for number, (start_ns, end_ns) in enumerate(zip(starts_ns, ends_ns))
    }


def _whole_profile(by_category: dict[str, list[Event]]) -> dict[int, Event]:
    """All calls as one step, on the thread of the first; for a profile of one step whose loop does not call step()."""
    calls = _events_of(by_category, LAUNCHES)
    if not calls or not _events_of(by_category, DEVICE):
        return {}
    end = max(call.end_ns for call in calls)
    return {0: Event(WHOLE, "", calls[0].tid, calls[0].start_ns, end, {})}


def _integer_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
