"""Formats are read and written in `presim.system.files` alone; the rest names its reason here."""

from __future__ import annotations

import ast
import functools

import pytest

from support.source_trees import PACKAGE, by_room, rooms, source_trees

DECODERS = {
    "json": {"load", "loads", "dump"},
    "msgspec": {"convert"},
    "msgspec.json": {"decode", "Decoder"},
    "msgspec.msgpack": {"decode", "Decoder"},
    "tomllib": {"load", "loads"},
    "yaml": {"load", "safe_load", "parse"},
    "csv": {"reader", "writer", "DictReader", "DictWriter"},
    "pickle": {"load", "loads"},
    "gzip": {"open", "compress", "decompress"},
    "ElementTree": {"fromstring", "parse", "iterparse", "XMLPullParser"},
    "np": {"load", "save", "savez"},
    "pq": {"read_table", "write_table", "read_schema", "ParquetFile", "ParquetWriter"},
    "tempfile": {"mkstemp", "NamedTemporaryFile"},
}
METHODS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}

# Module or package -> why it reads or writes something by itself.
EXCEPTIONS = {
    "presim.system.files": "the readers and the writer",
    "presim.shim": "build scripts, which run without presim",
    "presim.capture.processes": "the launch's own temporary folder, and /proc",
    "presim.capture.reading": "the capture's log, which grows while it is read",
    "presim.capture.rendezvous": "the launch's own temporary folder",
    "presim.capture.distributed": "payloads between the launch's own processes",
    "presim.capture.steps": "the capture's log, which grows while it is read, and the launch's own temporary folder",
    "presim.system.files.scratch": "the owners of temporary folders, and /proc",
    "presim.capture.runner": "the launch's own temporary folder, within the script's process",
    "presim.capture.zygote": "messages between the launch's own processes",
    "presim.capture.setup": "sources that are compiled, and the stamps of what was built",
    "presim.capture.script": "the user's Python source, and /proc",
    "presim.capture.adapters": "/proc, libraries and kernels' sources within the script's process",
    "presim.evaluation.live": "a socket and the capture's log",
    "presim.cost.profile.bench": "rows are appended while a GPU is measured, so that a lost card loses none",
    "presim.composition.frameworks.programs": "programs that are captured, which read what presim has checked",
    "presim.planner.trials.storage": "Optuna's journal is locked and cut off where a killed search left it",
    "presim.post_training.placement_study": "its file is locked and cut off where a killed search left it",
    "presim.serving.engines.real": "arrays for the engine's own process, in a temporary folder",
    "presim.app.jobs": "logs, which processes write while they run",
    "presim.serving.launching.slo_check": "a script that runs beside a benchmark, without presim",
    "presim.system.compiled_loops": "sources of the loops, whose digest names their machine code",
    "presim.system.machine_code": "object files that it keeps itself, in a folder of the cache",
    "presim.cli.streams": "standard streams that were closed",
}
PACKAGED = ("resources",)  # `resources.files(…).joinpath(…).read_text()` reads presim's own data


@functools.cache
def modules() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): tree for path, tree in source_trees().items()
    }


def readers(tree: ast.Module) -> list[str]:
    """Calls of a module that read or write by themselves, as ``line: source``."""
    return [
        f"{node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and is_reader(node.func) and not is_packaged(node)
    ]


def is_reader(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    owner = ast.unparse(function.value)
    return function.attr in DECODERS.get(owner, ()) or (
        function.attr in METHODS and owner not in ("self._engine", "webbrowser")
    )


def is_packaged(call: ast.Call) -> bool:
    return any(isinstance(node, ast.Name) and node.id in PACKAGED for node in ast.walk(call.func))


@pytest.mark.parametrize("room", rooms())
def test_a_module_leaves_files_to_the_readers(room: str) -> None:
    names = [name for name in by_room(modules()).get(room, []) if not name.startswith(tuple(EXCEPTIONS))]
    assert not {name: lines for name in names if (lines := readers(modules()[name]))}


def test_every_exception_is_one() -> None:
    """A reason that nothing needs any more is removed."""
    used = {name for name, tree in modules().items() if readers(tree)}
    assert not [reason for reason in EXCEPTIONS if not any(name.startswith(reason) for name in used)]
