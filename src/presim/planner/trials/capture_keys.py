"""Cache keys for captured commands, so that an identical capture need not run again.

The key covers the command's words, the options, presim itself, this machine, the environment, the installed packages by
name and version, the content of every file that a word names, and the sources next to a script, of a module started
with ``-m``, and below each folder of PYTHONPATH. Files that a script opens by itself are not covered.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from presim.errors import InputError
from presim.planner.trials.reply_cache import name_of
from presim.system.files import digest_of

_SOURCES = (".py", ".toml", ".yaml", ".yml", ".json", ".cfg", ".ini")
_MOST_FILES = 5000  # next to a script; with more, the dependencies are considered unknown
_SKIPPED = ("__pycache__", "node_modules", "site-packages")
_LARGEST = 64 << 20  # bytes; larger files count by size and modification time instead of content
_OF_THE_SHELL = frozenset(  # variables that do not affect a training program
    ("_", "COLUMNS", "DISPLAY", "HISTFILE", "LINES", "LS_COLORS", "OLDPWD", "PS1", "PWD", "SHLVL", "TERM", "TMPDIR")
)
_OF_SESSIONS = ("DBUS_", "GPG_", "PYTEST_", "SSH_", "TMUX", "VSCODE_", "XDG_SESSION")


def name_of_capture(words: Sequence[str], options: Mapping[str, object], folder: Path | None = None) -> str | None:
    """Hash of everything that capturing a command in a folder depends on; None if too many files are next to it."""
    folder = folder or Path.cwd()
    files = _source_files_of_command(words, folder)
    if files is None:
        return None
    host = os.uname()
    states = [(os.path.relpath(path, folder), _content_digest(path)) for path in sorted(files)]
    parts = (
        list(words),
        sorted(options.items()),
        _variables(folder),
        _packages(),
        states,
        _without_generated_folder(folder),
    )
    return name_of("capture", host.nodename, host.machine, sys.version, *parts)


def _without_generated_folder(folder: Path) -> str:
    """Path with a generated plan folder replaced by a constant, because its location does not matter."""
    return "" if (folder / MADE).exists() else str(folder)


MADE = ".presim-plan"  # marker file of a generated plan folder


def _source_files_of_command(words: Sequence[str], folder: Path) -> set[Path] | None:
    sources: set[Path] = set()
    for path in map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))):
        if not _add_sources(path, sources):
            return None
    for index, word in enumerate(words):
        path = folder / word.partition("=")[2] if word.startswith("-") and "=" in word else folder / word
        if path.is_file():
            sources.add(path)
            if path.suffix == ".py" and not _add_sources(path.parent, sources):
                return None
        elif index and words[index - 1] == "-m" and not _add_sources(_package(word), sources):
            return None
    return sources


def _package(module: str) -> Path | None:
    """Folder of a module started with `python -m`; None if not found or if it is an installed package."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(locations[0]) if locations and "site-packages" not in Path(locations[0]).parts else None


def _add_sources(folder: Path | None, sources: set[Path]) -> bool:
    """Add the sources below a folder; False if there are too many."""
    for path in _source_files(folder) if folder is not None else ():
        sources.add(path)
        if len(sources) > _MOST_FILES:
            return False
    return True


def _source_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(
            subfolder for subfolder in folders if not subfolder.startswith(".") and subfolder not in _SKIPPED
        )
        yield from (Path(parent, name) for name in names if name.endswith(_SOURCES))


def _content_digest(path: Path) -> str:
    try:
        status = path.stat()
        if status.st_size > _LARGEST:
            return f"{status.st_size} {status.st_mtime_ns}"
        return digest_of(path)
    except (OSError, InputError):
        return "unreadable"


def _variables(folder: Path) -> list[tuple[str, str]]:
    """The environment without terminal variables; paths of generated plan folders are replaced."""
    inside = str(folder) if not _without_generated_folder(folder) else ""
    return sorted(
        (name, value.replace(inside, ".") if inside else value)
        for name, value in os.environ.items()
        if name not in _OF_THE_SHELL and not name.startswith(_OF_SESSIONS)
    )


def _packages() -> list[str]:
    """Installed packages: names of metadata folders, which contain the version."""
    metadata_names: set[str] = set()
    for folder in sys.path:
        if os.path.isdir(folder):
            metadata_names |= {name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))}
    return sorted(metadata_names)
