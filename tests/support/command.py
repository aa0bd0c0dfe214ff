"""The `presim` command in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support import command_server, preloaded

COMMAND = [sys.executable, "-m", "presim.cli.main"]
TIMEOUT_S = 300
PRELOADED = [sys.executable, "-m", "support.preloaded"]  # the same, and its captures are forks


def presim(
    *args: str | Path,
    cwd: Path | None = None,
    limit_kib: int = 0,
    is_started: bool = False,
    modules: Sequence[Path] = (),
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end as a fork (`support.command_server`), whose captures are forks, too (`support.preloaded`).

    ``limit_kib``: the largest file that it and its script may write. With that, or where it ``is_started``, it and its
    captures are processes as ever. ``modules``: folders of the script's modules, none of which is a library's.

    Lines of progress, which a slow machine prints every ten seconds, are taken out of its standard error.
    """
    words = [*map(str, args)]
    is_plain = is_started or limit_kib or not preloaded.is_installed()
    path = ":".join([preloaded.PYTHON_PATH, *map(str, modules)])
    complete = environment({preloaded.SERVER: preloaded.server(), "PYTHONPATH": path, **variables})
    ended = None if is_plain else command_server.run("support.preloaded", words, cwd, complete, TIMEOUT_S)
    if ended is None:
        command = [*(COMMAND if is_plain else PRELOADED), *words]
        if limit_kib:
            command = ["bash", "-c", f'ulimit -f {limit_kib}; exec "$@"', "bash", *command]
        ended = subprocess.run(
            command, cwd=cwd, env=complete, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
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
