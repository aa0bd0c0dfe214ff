"""Runs ``presim profile``: plans, measures in a separate process, and adds the results to a table."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.cost.measured import table
from presim.cost.measured.rows import PROFILE, Intake, Measurement
from presim.errors import InputError
from presim.files import check_folder, make_folder
from presim.hardware import Gpu, catalogue
from presim.profile import CARD_LOST, NO_GPU
from presim.profile.plan import Plan, plan
from presim.trace.signatures import Signature

_RESULTS = "results.jsonl"
_GRACE_S = 60.0  # for starting, and for the signature that runs when the time is used up
_NO_LIBRARIES = (
    ", and there a PyTorch with NVIDIA's libraries, which `make venv` leaves out: pip install torch in another venv"
)
_PROBE = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What was measured now, and what was not."""

    gpu: str
    path: Path
    measured: int
    known: int
    left: int  # planned, but the time was used up
    rejected: dict[str, int]


def here() -> Gpu:
    """The GPU of this machine.

    Raises:
        InputError: there is none, or the catalogue does not have it.
    """
    asked = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False)
    words = asked.stderr.strip().splitlines()[-1:] if asked.returncode else []
    return gpu_named((asked.stdout.strip().splitlines() or [""])[-1], *words)


def gpu_named(name: str, why: str = "") -> Gpu:
    """The catalogue's entry for the name that the driver gives a card; ``why`` there is none, in PyTorch's words."""
    if not name:
        because = f" ({why})" if why else ""
        hint = _NO_LIBRARIES if ".so" in why else ""
        raise InputError(
            f"there is no GPU here that PyTorch can use{because}; presim profile needs a machine with one{hint}"
        )
    found = next((gpu for gpu in catalogue.gpus() if gpu.name == name), None)
    if found is None:
        raise InputError(
            f"the catalogue has no GPU named {name!r}, whose peaks would tell what cannot be true; "
            "`presim hardware list` shows those that it has"
        )
    return found


def profile(
    wanted: Iterable[Signature], out: Path, seconds: float, gpu: Gpu, say: Callable[[str], None] = lambda text: None
) -> Outcome:
    """Measure what the table in ``out`` lacks of ``wanted``, for so many seconds; a later call goes on.

    What was measured before Ctrl-C is kept.

    Raises:
        InputError: there is no GPU, or the measuring process ended early with nothing measured.
    """
    check_folder(out)
    path = out / f"{gpu.id}{table.SUFFIX}"
    before = list(table.read([path]).rows) if path.exists() else []
    planned = plan(wanted, {row.signature for row in before}, gpu)
    if not planned.work:
        return Outcome(gpu.id, path, 0, planned.known, 0, planned.left_out)
    say(f"measuring {len(planned.work)} kinds of work on {gpu.name}")
    with tempfile.TemporaryDirectory(prefix="presim-profile-") as scratch:
        try:
            lines = _measure(planned, Path(scratch), seconds)
        except KeyboardInterrupt:  # the next call goes on from here as well
            if len(lines := read_lines(Path(scratch) / _RESULTS)) > 1:
                _kept(lines, before, planned, gpu, path)
            raise
    return _kept(lines, before, planned, gpu, path)


def _measure(planned: Plan, scratch: Path, seconds: float) -> list[dict[str, Any]]:
    """The measuring process's lines; those that were written before it failed count too.

    Where work left the card in an error, which fails all that follows in a process, another one goes on behind it.
    """
    results = scratch / _RESULTS
    lines: list[dict[str, Any]] = []
    ends, code = time.monotonic() + seconds, CARD_LOST
    while code == CARD_LOST and (left := planned.work[max(len(lines) - 1, 0) :]) and time.monotonic() < ends:
        code, complaint = _process(left, results, ends - time.monotonic())
        lines = read_lines(results)
    if code == NO_GPU:
        raise InputError("there is no GPU here that PyTorch can use; presim profile needs a machine with one")
    if code and len(lines) < 2:
        raise InputError(f"measuring failed: {complaint or f'exit code {code}'}")
    return lines


def _process(work: Sequence[Signature], results: Path, seconds: float) -> tuple[int, str]:
    """Run a measuring process: its exit code, and its last words where it failed."""
    asked = results.with_name("work.json")
    asked.write_bytes(msgspec.json.encode(work))
    command = [sys.executable, "-m", "presim.profile.bench", str(asked), str(results), str(seconds)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _GRACE_S, check=False)
    except subprocess.TimeoutExpired:
        return -1, f"it did not end {_GRACE_S:.0f} s after its time"
    return ended.returncode, "".join(ended.stderr.strip().splitlines()[-1:])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a results file: the card's first, then those of work. The last one may have been cut off."""
    lines: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            read = json.loads(line)
        except ValueError:
            break
        if not lines or "signature" in read:
            lines.append(read)
    return lines


def _kept(lines: Sequence[dict[str, Any]], before: list[Measurement], planned: Plan, gpu: Gpu, path: Path) -> Outcome:
    intake = Intake(list(before))
    intake.rejected.update(planned.left_out)
    intake.take(row_of(line, gpu.id) for line in lines[1:])
    make_folder(path.parent)
    table.write(intake.accepted, path, {key: str(value) for key, value in (lines[0] if lines else {}).items()})
    measured = len(intake.accepted) - len(before)
    left = len(planned.work) - max(len(lines) - 1, 0)
    return Outcome(gpu.id, path, measured, planned.known, left, dict(sorted(intake.rejected.items())))


def row_of(line: dict[str, Any], gpu: str) -> Measurement | str:
    """A line of the measuring process as a row, or why there is none."""
    if "error" in line:
        return f"PyTorch: {line['error']}"
    return Measurement(
        gpu=gpu, signature=msgspec.convert(line["signature"], Signature), duration_ns=float(line["duration_ns"]),
        source=PROFILE, spread=float(line["spread"]), samples=int(line["samples"]),
    )  # fmt: skip
