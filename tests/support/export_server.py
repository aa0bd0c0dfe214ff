"""Exports of models' graphs and descriptions as forks of one process, which has imported PyTorch and transformers.

A user's call starts a process for each, of whose twelve seconds of CPU nine are imports. The code that runs is the same
module with the same arguments and environment. A call whose environment could change imports runs as a process of its
own. Two programs of tests need the same imports.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from presim.capture.setup.shim import SHIM_DIRECTORY
from support.preloaded import PYTHON_PATH, first_environment, import_variables

_MODULES = ("presim.composition.graph.export", "presim.composition.models.export")
_PROGRAMS = ("support.architectures", "support.executing.programs")  # of tests
_PREIMPORTED = ("transformers.modeling_utils", "transformers.models.auto.modeling_auto", "torch._dynamo")
_OFFLINE = {"CUDA_VISIBLE_DEVICES": "", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
Command = list[str]
RunExporter = Callable[[Command], "subprocess.CompletedProcess[str]"]


def forked(run_exporter: RunExporter) -> RunExporter:
    """`presim.composition.graph.take.run_exporter`, with forks in place of processes where that is the same."""

    def run(command: Command) -> subprocess.CompletedProcess[str]:
        is_export = command[:2] == [sys.executable, "-m"] and command[2] in (*_MODULES, *_PROGRAMS)
        if not is_export or import_variables(os.environ) != _server().variables:
            return run_exporter(command)
        return _server().run(command)

    return run


@functools.cache
def _server() -> _Server:
    return _Server()


class _Server:
    def __init__(self) -> None:
        self.variables = import_variables(first_environment())
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from support.export_server import serve; serve()"],
            env=_complete(first_environment()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._process.kill)

    def run(self, command: Command) -> subprocess.CompletedProcess[str]:
        """Run one command in a fork."""
        with tempfile.TemporaryDirectory() as folder:
            request = {
                "arguments": command[2:],
                "folder": folder,
                "cwd": os.getcwd(),
                "environment": _complete(os.environ),
            }
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            texts = [Path(folder, name).read_text() for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess(command, code, *texts)


def _complete(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {name: text for name, text in environment.items() if not name.startswith("PYTEST_")}
    paths = [str(SHIM_DIRECTORY / "lib"), variables.get("LD_LIBRARY_PATH", "")]
    return variables | _OFFLINE | {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), "PYTHONPATH": PYTHON_PATH}


def serve() -> None:
    """Fork for each request on standard input, and answer with its exit code."""
    for module in (*_PREIMPORTED, *(f"{name}.__main__" for name in _MODULES)):
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if process == 0:
            _run(request)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
        sys.stdout.flush()


def _run(request: dict[str, Any]) -> None:
    """The forked process: what ``python -m MODULE ARGUMENTS`` does."""
    code = 1
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(Path(str(request["folder"]), name), os.O_WRONLY | os.O_CREAT), number)
        os.chdir(str(request["cwd"]))
        os.environ.clear()
        os.environ.update(request["environment"])
        module, *arguments = request["arguments"]
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code and not isinstance(stop.code, int):
            sys.stderr.write(f"{stop.code}\n")
    except BaseException:  # noqa: BLE001 - as the interpreter prints it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
