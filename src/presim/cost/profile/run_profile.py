"""Run ``presim profile``: plan, measure in a separate process, and add the results to a table."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.cost.measured import table
from presim.cost.measured.measured_rows import PROFILE, Intake, Measurement
from presim.cost.profile import CARD_LOST, NO_GPU
from presim.cost.profile.measurement_plan import MeasurementPlan, plan
from presim.errors import InputError
from presim.hardware import Gpu, catalogue
from presim.system.files import check_folder, decode_json_lines, make_folder, read_text, to_type, write_file
from presim.system.files.scratch import temporary_folder
from presim.trace.signatures import Signature

_RESULTS = "results.jsonl"
_GRACE_S = 60.0  # for the start, and for the signature being measured when the time is up
_NO_LIBRARIES = ", and a PyTorch with NVIDIA's libraries, which `make venv` omits: pip install torch in another venv"
_PROBE = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"


@dataclasses.dataclass(frozen=True)
class MeasuredCounts:
    """Numbers of measured and omitted signatures of one call."""

    gpu: str
    path: Path
    measured: int
    num_known: int
    num_unmeasured: int  # planned, but the time was up
    rejected: dict[str, int]


def local_gpu() -> Gpu:
    """The GPU of this machine.

    Raises:
        InputError: there is no GPU, or the catalogue lacks it.
    """
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False)
    words = probe.stderr.strip().splitlines()[-1:] if probe.returncode else []
    return gpu_named((probe.stdout.strip().splitlines() or [""])[-1], *words)


def gpu_named(name: str, why: str = "") -> Gpu:
    """The catalogue's GPU for a driver's name; ``why``: PyTorch's error if there is no GPU.

    Raises:
        InputError: there is no GPU, or the catalogue lacks it.
    """
    if not name:
        because = f" ({why})" if why else ""
        hint = _NO_LIBRARIES if ".so" in why else ""
        raise InputError(
            f"there is no GPU here that PyTorch can use{because}; presim profile needs a machine with one{hint}"
        )
    gpu = next((gpu for gpu in catalogue.gpus() if gpu.name == name), None)
    if gpu is None:
        raise InputError(
            f"the catalogue has no GPU named {name!r}, and presim needs its peaks to reject impossible results; "
            "`presim hardware list` lists its GPUs"
        )
    return gpu


def profile(
    signatures: Iterable[Signature], out: Path, seconds: float, gpu: Gpu, say: Callable[[str], None] = lambda text: None
) -> MeasuredCounts:
    """Measure signatures of ``signatures`` that the table in ``out`` lacks, within a time budget; later calls continue.

    Measurements made before Ctrl-C are kept, and its exception has a note that says so.

    Raises:
        InputError: there is no GPU, or the measuring process failed before it measured anything.
    """
    check_folder(out)
    path = out / f"{gpu.id}{table.SUFFIX}"
    before = list(table.read([path]).rows) if path.exists() else []
    planned = plan(signatures, {row.signature for row in before}, gpu)
    if not planned.work:
        return MeasuredCounts(gpu.id, path, 0, planned.num_known, 0, planned.omitted)
    say(f"measuring {len(planned.work)} kinds of work on {gpu.name}")
    with temporary_folder("profile") as folder:
        try:
            lines = _measure(planned, folder, seconds)
        except KeyboardInterrupt as error:  # a later call continues from here too
            if len(lines := read_lines(folder / _RESULTS)) > 1:
                error.add_note(describe_outcome(_write_measurements(lines, before, planned, gpu, path)))
            raise
    return _write_measurements(lines, before, planned, gpu, path)


def describe_outcome(outcome: MeasuredCounts) -> str:
    """What a call measured, in a line."""
    left = f"{outcome.num_unmeasured} left for the next call"
    return f"{outcome.path}: {outcome.measured} measured, {outcome.num_known} known already, {left}"


def _measure(planned: MeasurementPlan, scratch: Path, seconds: float) -> list[dict[str, Any]]:
    """Run measuring processes and return their lines, including those written before a failure.

    If a measurement leaves the GPU in an error state, which fails all later work of a process, another process
    continues after it.
    """
    results = scratch / _RESULTS
    lines: list[dict[str, Any]] = []
    deadline_s, code = time.monotonic() + seconds, CARD_LOST
    while (
        code == CARD_LOST
        and (remaining_work := planned.work[max(len(lines) - 1, 0) :])
        and time.monotonic() < deadline_s
    ):
        code, complaint = _process(remaining_work, results, deadline_s - time.monotonic())
        lines = read_lines(results)
    if code == NO_GPU:
        raise InputError("there is no GPU here that PyTorch can use; presim profile needs a machine with one")
    if code and len(lines) < 2:
        raise InputError(f"measuring failed: {complaint or f'exit code {code}'}")
    return lines


def _process(work: Sequence[Signature], results: Path, seconds: float) -> tuple[int, str]:
    """Run a measuring process; returns its exit code and, if it failed, the last line of its error output."""
    work_file = results.with_name("work.json")
    write_file(work_file, msgspec.json.encode(work))
    command = [sys.executable, "-m", "presim.cost.profile.bench", str(work_file), str(results), str(seconds)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _GRACE_S, check=False)
    except subprocess.TimeoutExpired:
        return -1, f"it did not end {_GRACE_S:.0f} s after its time"
    return ended.returncode, "".join(ended.stderr.strip().splitlines()[-1:])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Complete lines of a results file: the GPU's first, then measurements. The last line may be incomplete."""
    lines: list[dict[str, Any]] = []
    for read in decode_json_lines(read_text(path, "name another folder with --out")) if path.exists() else ():
        if not isinstance(read, dict):
            break
        if not lines or "signature" in read:
            lines.append(read)
    return lines


def _write_measurements(
    lines: Sequence[dict[str, Any]], before: list[Measurement], planned: MeasurementPlan, gpu: Gpu, path: Path
) -> MeasuredCounts:
    intake = Intake(list(before))
    intake.rejected.update(planned.omitted)
    intake.take(row_of(line, gpu.id) for line in lines[1:])
    make_folder(path.parent)
    table.write(intake.accepted, path, {key: str(value) for key, value in (lines[0] if lines else {}).items()})
    measured = len(intake.accepted) - len(before)
    num_unmeasured = len(planned.work) - max(len(lines) - 1, 0)
    return MeasuredCounts(
        gpu.id, path, measured, planned.num_known, num_unmeasured, dict(sorted(intake.rejected.items()))
    )


def row_of(line: dict[str, Any], gpu: str) -> Measurement | str:
    """A line of the measuring process as a row, or why there is none."""
    if "error" in line:
        return f"PyTorch: {line['error']}"
    return Measurement(
        gpu=gpu, signature=to_type(line["signature"], Signature), duration_ns=float(line["duration_ns"]),
        source=PROFILE, spread=float(line["spread"]), samples=int(line["samples"]),
    )  # fmt: skip
