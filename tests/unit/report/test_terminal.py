"""The report on a terminal."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from presim.analysis.summarise import summarise
from presim.report import terminal
from presim.result import Result
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Trace
from presim.units import percent, seconds
from support import fakes, workloads
from support.step_shapes import critic_and_generator


def printed(trace: Trace, width: int = 104) -> str:
    priced = fakes.priced(trace)
    result: Result = summarise(priced, fakes.simulate(priced), fakes.DEVICE)
    out = io.StringIO()
    terminal.write(result, console=Console(file=out, width=width, highlight=False))
    return out.getvalue()


def test_the_report_says_the_main_figures() -> None:
    """Step time, throughput, utilisation and memory stand in its first lines."""
    head = "\n".join(printed(workloads.llama_8b(steps=2)).splitlines()[:6])
    for text in ("rank 0 of 128", "998 ms", "1.05 M tokens/s", "42.7%", "57.0%", "7.1 of 79.6 GiB", "fits"):
        assert text in head


def test_the_report_fits_a_screen() -> None:
    """About fifty lines, none wider than the terminal."""
    lines = printed(workloads.llama_8b(steps=2)).splitlines()
    assert len(lines) <= 50
    assert max(len(line) for line in lines) <= 104


def test_every_note_is_printed() -> None:
    """A note says what a figure rests on: none is left to the JSON result."""
    priced = fakes.priced(workloads.llama_8b(steps=2))
    result: Result = summarise(priced, fakes.simulate(priced), fakes.DEVICE)
    notes, gaps = [f"Note {number}." for number in range(9)], [f"Gap {number}." for number in range(9)]
    out = io.StringIO()
    terminal.write(msgspec.structs.replace(result, notes=notes, not_modelled=gaps), file=out)
    assert [text for text in (*notes, *gaps) if text not in out.getvalue()] == []


@pytest.mark.parametrize("width", [40, 60, 80, 104, 200])
def test_any_width_will_do(width: int) -> None:
    """Tables that do not fit beside each other go below each other; figures are never cut."""
    text = printed(workloads.llama_8b(steps=2), width)
    assert max(len(line) for line in text.splitlines()) <= min(width, terminal.WIDTH)
    assert "Operators" in text
    for figure in ("80.8%", "807 ms", "64.5%", "644 ms"):
        assert figure in text


@pytest.mark.parametrize("width", [72, 80, 104])
def test_phases_of_a_step_have_their_lines_and_times(width: int) -> None:
    """Those that the step of the figures lacks are named, with how many steps have them."""
    text = printed(critic_and_generator(evaluated_step=3), width)
    assert "Phases of a step  the step time is that of those with a share" in text
    rows = [line for line in text.splitlines() if "gan.py" in line or "…" in line]
    assert [row.split()[0] for row in rows] == ["loop", "up", "model"]
    assert ["in 1 of 4 steps" in row for row in rows] == [False, False, True]
    assert "Phases of a step" not in printed(workloads.llama_8b(steps=2), width)


def test_modules_show_their_part_of_the_step() -> None:
    """Time and share are of one kind: device time that other work hides counts in neither."""
    trace = workloads.llama_8b(steps=2)
    priced = fakes.priced(trace)
    result = summarise(priced, fakes.simulate(priced), fakes.DEVICE)
    overlapped = next(module for module in result.modules if module.path == "model.layers.*")
    assert result.step_time_s is not None
    assert overlapped.seconds > 1.5 * result.step_time_s
    share = percent(overlapped.critical_s / result.step_time_s)
    line = next(line for line in printed(trace, width=80).splitlines() if line.split()[:1] == [overlapped.path])
    assert line.split()[-2:] == [seconds(overlapped.critical_s).split()[1], share]


def test_bars_tell_their_parts_apart_without_colour() -> None:
    """Letters stand for what colours show."""
    text = printed(workloads.launch_bound())
    assert "ccchhh" in text
    assert "h waiting for host 2.80 ms 77.8%" in text


def test_a_failure_comes_first_and_memory_explains_it() -> None:
    """No step time is invented for a script that ran out of memory."""
    text = printed(workloads.out_of_memory())
    assert text.splitlines()[2].startswith("✗ out of memory: OutOfMemoryError: CUDA out of memory. Tried to allocate")
    assert "no step completed" in text
    assert "Operators" not in text


def test_an_empty_result_is_printed_too() -> None:
    """Nothing known, nothing raised."""
    assert "unknown" in printed(TraceBuilder().trace())
