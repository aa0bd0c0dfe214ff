"""Content shared by all reports for people: labels, figures and sentences."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from presim.report.bars import Part
from presim.result import Result, StepPhase
from presim.result.memory import OTHER_PROCESSES
from presim.result.provenance import Share
from presim.units import GIB, count, percent, seconds, seconds_range, three_digits

PARTIAL = "partial: the work was interrupted; the notes say what is missing"
_FAILURES = {
    "out_of_memory": "out of memory",
    "raised": "the script raised",
    "exited": "the script left with an error code",
    "killed": "the script was killed",
}
_PHASES = {"loop": "loop at", "update": "up to optimizer step at", "call": "model call at"}
_MOST_STEPS = 100  # in "in 1 of 3 steps"
_CATEGORY_STYLES = {
    "parameter": ("blue", "p"),
    "gradient": ("magenta", "g"),
    "optimizer_state": ("cyan", "o"),
    "activation": ("green", "a"),
    "temporary": ("yellow", "t"),
    "input": ("bright_blue", "i"),
    "buffer": ("bright_magenta", "b"),
    "communication": ("bright_yellow", "c"),
    "other": ("bright_white", "?"),
}
MEMORY_CATEGORIES = tuple(name.replace("_", " ") for name in _CATEGORY_STYLES)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One of the key figures at the top of a report."""

    label: str
    value: str
    remark: str
    style: str = ""  # of the value


def rank_and_cluster(result: Result) -> str:
    """The rank that the figures describe, and its cluster."""
    return f"rank {result.job.rank} of {result.job.world_size} · {result.job.cluster}"


def failure(result: Result) -> tuple[str, str] | None:
    """How the script failed, and its error in one line; None if it did not fail."""
    return (_FAILURES[result.exit], in_a_line(result.error)) if result.exit in _FAILURES else None


def in_a_line(error: str) -> str:
    r"""The first and the last line of an error. Errors passed on from another process have a traceback in between.

    >>> in_a_line("RuntimeError: caught in a worker"), in_a_line("RuntimeError: caught. Traceback:\n  …\nKeyError: 3")
    ('RuntimeError: caught in a worker', 'RuntimeError: caught. Traceback: … KeyError: 3')
    """
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return f"{lines[0]} … {lines[-1]}" if len(lines) > 1 else "".join(lines)


def headline(result: Result) -> list[Cell]:
    """Step time, throughput, utilisation and memory, where known."""
    return [_step(result), *_throughput(result), *_utilisation(result), _memory(result)]


def _step(result: Result) -> Cell:
    if result.step_time_s is None or result.step_time_low_s is None or result.step_time_high_s is None:
        return Cell("step time", "unknown", "no step completed")
    shown = f"step {result.steps.steady_index + 1}" if result.steps.steady_index else "first step"
    label = "step time" if result.steps.steady else shown if result.steps.count else "whole run"
    doubt = max(result.step_time_high_s - result.step_time_s, result.step_time_s - result.step_time_low_s)
    interval = seconds_range(result.step_time_low_s, result.step_time_high_s) if doubt else ""
    mean = result.steps.mean_s if result.steps.unusual and not result.steps.added_wait_s else None
    return Cell(label, seconds(result.step_time_s), f"mean {seconds(mean)}" if mean else interval, "bright_cyan")


def _throughput(result: Result) -> list[Cell]:
    rates = [
        (f"{count(value)} {unit}/s")
        for value, unit in ((result.throughput.tokens_per_s, "tokens"), (result.throughput.samples_per_s, "samples"))
        if value is not None
    ]
    return [Cell("throughput", rates[0], rates[1] if len(rates) > 1 else "")] if rates else []


def _utilisation(result: Result) -> list[Cell]:
    if result.mfu is None or result.hfu is None:
        return []
    peak = f"MFU of {result.flops.peak_per_s / 1e12:.0f} TFLOP/s" if result.flops.peak_per_s else "MFU"
    return [Cell(peak, percent(result.mfu), f"HFU {percent(result.hfu)}")]


def _memory(result: Result) -> Cell:
    memory = result.memory
    if not memory.peak_reserved_bytes:
        return Cell("memory", "none", "")
    used_bytes = memory.used_bytes
    used = f"{used_bytes / GIB:.1f} of {memory.device_total_bytes / GIB:.1f} GiB"
    words = {True: ("fits", "green"), False: ("does not fit", "red"), None: ("unknown", "")}
    return Cell("device memory", used, *words[memory.fits])


def time_caption(result: Result) -> str:
    """The hidden share of communication; empty without communication."""
    time = result.time
    if not time.communication_s:
        return ""
    hidden = 1 - (time.exposed_communication_s - time.waiting_s) / time.communication_s
    hidden_share = f"{percent(hidden)} of {seconds(time.communication_s)} communication is hidden"
    return (
        f"{hidden_share}; {seconds(time.waiting_s)} of waiting for other ranks is exposed"
        if time.waiting_s
        else hidden_share
    )


def time_parts(result: Result) -> list[Part]:
    """The step time by kind of work. The parts add up to it."""
    time = result.time
    named = (
        ("compute", time.compute_s, "green", "c"),
        ("exposed communication", time.exposed_communication_s, "red", "x"),
        ("exposed copies", time.exposed_copy_s, "yellow", "y"),
        ("waiting for host", time.host_bound_s, "magenta", "h"),
        ("idle", time.idle_s, "grey50", "."),
    )
    total = sum(size for _, size, _, _ in named) or float("inf")
    return [
        Part(name, size, style, letter, f"{seconds(size)} {percent(size / total)}")
        for name, size, style, letter in named
    ]


def phase_caption(result: Result) -> str:
    """Which phases the step time is about."""
    if all(phase.share is not None for phase in result.steps.phases):
        return "the step time is that of all together"
    return "the step time is that of those with a share"


def phase_name(phase: StepPhase) -> str:
    """A phase of a step in words, with its line in the script."""
    return f"{_PHASES[phase.kind]} {phase.line.rpartition('/')[2]}"


def phase_share(phase: StepPhase) -> str:
    """A phase's share of the step that the figures describe, or in how many steps it is if that lacks it."""
    if phase.share is not None:
        return percent(phase.share)
    share = Fraction(phase.share_of_steps).limit_denominator(_MOST_STEPS)
    return f"in {share.numerator} of {share.denominator} steps"


def memory_parts(result: Result) -> list[Part]:
    """Device memory at the peak in GiB: by category, reserved but unused, outside the allocator, free."""
    memory = result.memory
    bytes_by_category = {item.name: item.bytes for item in memory.by_category}
    unused = max(memory.peak_reserved_bytes - memory.peak_allocated_bytes, 0)
    other_process_bytes = sum(item.bytes for item in memory.beyond_allocator if item.name.startswith(OTHER_PROCESSES))
    named = (
        *((name.replace("_", " "), bytes_by_category.get(name, 0), *style) for name, style in _CATEGORY_STYLES.items()),
        ("reserved, unused", unused, "white", "r"),
        ("context and libraries", memory.outside_allocator_bytes - other_process_bytes, "red", "n"),
        ("other processes", other_process_bytes, "bright_red", "z"),
        ("free", max(memory.headroom_bytes, 0), "grey30", "."),
    )
    return [Part(name, size, style, letter, three_digits(size / GIB)) for name, size, style, letter in named]


def rate(GBps: float | None) -> str:
    """A collective's bytes over its time, in GB/s; empty if it took no time."""
    if not GBps:
        return ""
    return f"{GBps:.0f}" if GBps >= 1 else "<1"


def origins(result: Result) -> str:
    """Origins of the step time in one line; empty if unknown."""
    if result.step_time_s is None:
        return ""
    shares = result.provenance.by_origin
    return ", ".join(f"{percent(share.share)} {share.name} {_doubt(share)}" for share in shares)


def _doubt(share: Share) -> str:
    shorter = f"{share.uncertainty * 100:.0f}"
    return f"-{shorter}/+{share.longer * 100:.0f}%" if share.longer > share.uncertainty else f"±{shorter}%"


def energy(result: Result) -> str:
    """Energy of a step in one line; empty if unknown."""
    if result.energy is None:
        return ""
    step_energy = result.energy
    low, high = (three_digits(joules) for joules in (step_energy.joules_low, step_energy.joules_high))
    return (
        f"energy of a step about {three_digits(step_energy.joules)} J a GPU ({low} to {high}), "
        f"{step_energy.watts:.0f} of {step_energy.limit_watts:.0f} W on average"
    )
