"""The `presim` command in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from support import preloaded

COMMAND = [sys.executable, "-m", "presim.cli.main"]
PRELOADED = [sys.executable, "-m", "support.preloaded"]  # the same, and its captures are forks


def presim(
    *args: str | Path, cwd: Path | None = None, limit_kib: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, its captures as forks (`support.preloaded`).

    ``limit_kib``: the largest file that it and its script may write. With that or a path of modules, its captures are
    processes as ever.

    Lines of progress, which a slow machine prints every ten seconds, are taken out of its standard error.
    """
    is_plain = limit_kib or "PYTHONPATH" in variables or not preloaded.is_installed()
    words = [*(COMMAND if is_plain else PRELOADED), *map(str, args)]
    variables = {preloaded.SERVER: preloaded.start_server(), **variables}
    if limit_kib:
        words = ["bash", "-c", f'ulimit -f {limit_kib}; exec "$@"', "bash", *words]
    ended = subprocess.run(
        words, cwd=cwd, env=environment(variables), capture_output=True, text=True, timeout=300, check=False
    )
    ended.stderr = without_progress(ended.stderr)
    return ended


def without_progress(stderr: str) -> str:
    """Standard error without lines such as ``presim: simulating (20 s)``."""
    return re.sub(r"^presim: .* \(\d+ s\)\n", "", stderr, flags=re.MULTILINE)


def start(*args: str | Path, cwd: Path, **variables: str) -> subprocess.Popen[str]:
    """Start it with pipes for what it prints; Ctrl-C works even where this process ignores it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, args)],
        cwd=cwd,
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def environment(variables: dict[str, str]) -> dict[str, str]:
    """This process's environment with some variables more; presim is found from any directory."""
    return dict(os.environ) | {"PYTHONPATH": preloaded.PYTHON_PATH} | variables


def processes_of(mark: str) -> list[int]:
    """Living processes with a text in their command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            texts = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            zombie = "\nState:\tZ" in (entry / "status").read_text()
        except OSError:
            continue
        if mark.encode() in texts and not zombie:
            found.append(int(entry.name))
    return found
