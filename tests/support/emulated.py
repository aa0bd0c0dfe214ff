"""Run a piece of Python on the emulated device and read what it asked of it, section by section."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from presim.capture.reading.log import Log, read_log
from presim.capture.rendezvous.payload_mail import exchange_variables, write_ranks
from presim.capture.setup.environment import find_torch, torch_problem
from presim.capture.setup.shim import shim_libraries

WORK, COLLECTIVE = 0, 1
_GPUS = 8  # of the emulated node
_DEVICE = """\
name NVIDIA H100 80GB HBM3
count {2}
compute_major {0}
compute_minor {1}
memory_bytes 85520809984
"""
_PREAMBLE = """\
import atexit, contextlib, ctypes, json, os, struct

def _records():
    path = os.environ["PRESIM_LOG_DIR"] + "/log.bin"
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        file.seek(16)
        return struct.unpack("<Q", file.read(8))[0]

_sections, results = {}, {}

@contextlib.contextmanager
def section(name):
    first = _records()
    try:
        yield
    finally:
        _sections[name] = (first, _records())

@atexit.register
def _save():
    with open(os.environ["PRESIM_LOG_DIR"] + "/sections.json", "w") as file:
        json.dump([_sections, results], file)
"""


@dataclasses.dataclass(frozen=True)
class Captured:
    """What one process left: its log, the records of each section, and what it put into ``results``."""

    log: Log
    sections: dict[str, tuple[int, int]]
    results: dict[str, object]

    def work(self, section: str, family: str = "") -> list[str]:
        """Texts of the device work and collectives of a section in order, of one family if given."""
        first, end = self.sections[section]
        records = self.log.records[first:end]
        kinds = records["kind"]
        texts = [self.log.texts[record["work"]] for record in records[(kinds == WORK) | (kinds == COLLECTIVE)]]
        return [text for text in texts if not family or text.split(" ")[0] == family]

    def launch_groups(self, section: str) -> list[int]:
        """Serial of the NCCL launch of each collective of a section."""
        first, end = self.sections[section]
        records = self.log.records[first:end]
        return [int(serial) for serial in records[records["kind"] == COLLECTIVE]["object"]]


def run(code: str, directory: Path, *, compute: tuple[int, int] = (9, 0), **variables: str) -> Captured:
    """Run ``code`` (it may use ``section(name)``, ``results`` and ctypes) and return what it left behind.

    ``compute`` is the emulated device's compute capability, ``variables`` are set in the process's environment.
    """
    return _finish(_start(code, directory, compute, variables), directory)


def run_ranks(
    code: str, directory: Path, ranks: Mapping[int, Sequence[int]], *, world_size: int, **variables: str
) -> dict[int, Captured]:
    """`run` several ranks at once, which exchange small payloads; ``ranks``: each with those it represents."""
    shared = directory / "ranks"
    shared.mkdir()
    write_ranks(shared, ranks)
    places = {rank: directory / f"rank{rank}" for rank in ranks}
    started = {
        rank: _start(code, place, (9, 0), variables | _own_gpu(rank) | exchange_variables(shared, rank, world_size))
        for rank, place in places.items()
    }
    try:
        return {rank: _finish(started[rank], place) for rank, place in places.items()}
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


def _own_gpu(rank: int) -> dict[str, str]:
    """As a launcher does that lets each process see one GPU."""
    return {"CUDA_VISIBLE_DEVICES": str(rank % _GPUS)}


def _start(code: str, directory: Path, compute: tuple[int, int], variables: dict[str, str]) -> subprocess.Popen[str]:
    libraries = shim_libraries()
    if not libraries:
        pytest.skip("the shim is not built: `make shim`")
    log = directory / "log"
    log.mkdir(parents=True, exist_ok=True)
    (directory / "device").write_text(_DEVICE.format(*compute, _GPUS))
    environment = os.environ | {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "LD_LIBRARY_PATH": str(libraries[0].parent),
        "PRESIM_DEVICE": str(directory / "device"),
        "PRESIM_LOG_DIR": str(log),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    script = directory / "script.py"
    script.write_text(_PREAMBLE + textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _finish(process: subprocess.Popen[str], directory: Path) -> Captured:
    try:
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-3000:]
    log = directory / "log"
    sections, results = json.loads((log / "sections.json").read_text())
    return Captured(read_log(log), {name: tuple(span) for name, span in sections.items()}, results)


def require_cuda_torch() -> None:
    """Skip where no CUDA build of PyTorch is installed that presim supports."""
    problem = torch_problem(find_torch())
    if problem:
        pytest.skip(problem)
