"""Temporary folders that name their owner, so that a later call removes those whose owner was killed.

SIGKILL leaves no time to clean up. Each folder therefore has a file `OWNER` with the process that made it.
`temporary_folder` first removes the folders of processes of this user that have ended. A folder without that file, of
another user, machine or container, or of a process that lives, is never touched.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "presim-"
OWNER = ".presim-owner.json"
_START_TIME = 19  # field of /proc/PID/stat behind the name: field 22 of proc_pid_stat(5), in clock ticks since boot


@contextlib.contextmanager
def temporary_folder(kind: str = "", parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder that is removed at the end of the block, or by a later call if this process is killed.

    ``kind``: a word for its name. ``parent``: where it is made; None: in the system's folder for temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    sweep(parent)
    prefix = f"{PREFIX}{kind}-" if kind else PREFIX
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as name:
        (Path(name) / OWNER).write_text(json.dumps(_identity(os.getpid())))
        yield Path(name)


@functools.cache
def sweep(parent: Path) -> None:
    """Remove the folders of dead owners from a folder, once in a process."""
    with contextlib.suppress(OSError):
        for path in parent.glob(f"{PREFIX}*"):
            if _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(path: Path) -> bool:
    try:
        if path.is_symlink() or path.stat().st_uid != os.getuid():
            return False
        owner = json.loads((path / OWNER).read_text())
        process = owner["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    own_identity = _identity(os.getpid())
    if not isinstance(process, int) or any(owner.get(name) != own_identity[name] for name in ("boot", "pid_namespace")):
        return False  # process ids of another machine or container say nothing here
    return bool(_identity(process)["start_ticks"] != owner.get("start_ticks"))


def _identity(process: int) -> dict[str, object]:
    """What tells a process from all others, those of other machines and containers and later ones with its id too."""
    return {
        "pid": process,
        "start_ticks": _start_ticks(process),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": os.readlink("/proc/self/ns/pid"),
    }


def _start_ticks(process: int) -> int | None:
    """When a process started; None where there is none, or only a zombie."""
    fields = _text(f"/proc/{process}/stat").rpartition(")")[2].split()
    return int(fields[_START_TIME]) if fields and fields[0] not in "ZX" else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
