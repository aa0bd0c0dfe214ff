"""The `presim` command in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from support.captured import ROOT

COMMAND = [sys.executable, "-m", "presim.cli.main"]


def presim(
    *args: str | Path, cwd: Path | None = None, limit_kib: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end. ``limit_kib``: the largest file that it and its script may write.

    Lines of progress, which a slow machine prints every ten seconds, are taken out of its standard error.
    """
    words = [*COMMAND, *map(str, args)]
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
    return dict(os.environ) | {"PYTHONPATH": str(ROOT / "src")} | variables


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
