"""The `presim` command as forks of one process that has imported presim: ``python -m support.command_server``.

Most of a short command's time is Python's start and imports. `run` does what ``python -m MODULE ARGUMENTS`` does, with
the same environment, directory and outputs, in a fork of a process that only imports and waits.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from support.preloaded import PYTHON_PATH, first_environment, import_variables

_WITHOUT_THREADS = {  # which forks would lack
    "ARROW_DEFAULT_MEMORY_POOL_OPTIONS": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}
_LEFT_OUT = ("presim.verbs.prepare",)


def run(
    module: str, arguments: Sequence[str], cwd: Path | None, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str] | None:
    """Run a module to its end; None where imports could be others with these variables, or no fork can be made."""
    server = _server()
    if not server.can_fork or import_variables(environment) != server.variables:
        return None
    return server.run(
        {"module": module, "arguments": [*arguments], "cwd": str(cwd or Path.cwd())}, environment, timeout_s
    )


@functools.cache
def _server() -> _Server:
    return _Server()


class _Server:
    def __init__(self) -> None:
        self.variables = import_variables(first_environment())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.command_server"],
            env=first_environment() | {"PYTHONPATH": PYTHON_PATH} | _WITHOUT_THREADS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        atexit.register(self._process.kill)
        self.can_fork = self._line() == "ready"

    def run(
        self, request: dict[str, Any], environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Fork for one command, and wait for its end."""
        with tempfile.TemporaryDirectory(prefix="presim-tests-command-") as folder:
            request |= {"environment": dict(environment), "outputs": folder}
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            pid = int(self._line())
            if not select.select([self._process.stdout], [], [], timeout_s)[0]:
                os.kill(pid, signal.SIGKILL)
                self._line()
                raise subprocess.TimeoutExpired(request["arguments"], timeout_s)
            code = int(self._line())
            texts = [Path(folder, name).read_text() for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess(request["arguments"], code, *texts)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def serve() -> None:
    """Import presim, then fork for each request until the test process ends."""
    _import_presim()
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd(), *PYTHON_PATH.split(":"))]
    gc.collect()
    gc.freeze()
    _say("ready" if len(os.listdir("/proc/self/task")) == 1 else "threads")
    for line in sys.stdin:
        server, process = os.getpid(), os.fork()
        if process == 0:
            _run(server, json.loads(line))
        _say(process)
        _say(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def _say(answer: str | int) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


def _import_presim() -> None:
    """What verbs import when they are called."""
    import presim.verbs
    from presim.cli import main

    for verb in main.VERBS:
        importlib.import_module(f"presim.cli.{verb}")
    for module in pkgutil.iter_modules(presim.verbs.__path__, "presim.verbs."):
        if module.name not in _LEFT_OUT:
            importlib.import_module(module.name)


def _run(server: int, request: dict[str, Any]) -> NoReturn:
    """The fork: what ``python -m MODULE ARGUMENTS`` does, to its end."""
    from presim.capture.processes.rank_process import end_with_parent

    code = 1
    try:
        os.setsid()
        end_with_parent(server)
        outputs = [os.open(Path(request["outputs"], name), os.O_CREAT | os.O_WRONLY) for name in ("stdout", "stderr")]
        for file, number in zip((os.open(os.devnull, os.O_RDONLY), *outputs), range(3), strict=True):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        sys.path[:0] = [request["cwd"], *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        sys.argv[1:] = request["arguments"]
        importlib.import_module(request["module"]).main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - a fork must never continue as the server
        traceback.print_exc()
    finally:
        _end(code)


def _end(code: int) -> NoReturn:
    """As the interpreter ends: threads, functions registered with atexit, buffers."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
