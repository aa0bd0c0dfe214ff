"""Select the importer for a folder, and identify the version of its data."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from presim.cost.measured import table
from presim.cost.measured.importers import (
    aiconfigurator,
    infersim,
    kineto,
    layer_tables,
    llmservingsim,
    mamf,
    ncu,
    neusight,
    own,
    simumax,
)
from presim.cost.measured.measured_rows import Intake, Measurement
from presim.errors import InputError
from presim.system.files import check_folder, digest_of, make_folder, read_text
from presim.system.interrupts import caught

READERS: dict[str, ModuleType] = {
    "presim": own,
    "aiconfigurator": aiconfigurator,
    "neusight": neusight,
    "layers": layer_tables,
    "simumax": simumax,
    "infersim": infersim,
    "llmservingsim": llmservingsim,
    "mamf": mamf,
    "ncu": ncu,
    "kineto": kineto,
}
_CORE = "aiconfigurator-core"
_PACKAGES = (_CORE, "aiconfigurator")  # on PyPI; the first has the tables, the second those of older versions
_KNOWN = (  # as in the guide
    "aiconfigurator, NeuSight, vidur, Frontier, SimuMax, InferSim, LLMServingSim, MAMF's CSV, Nsight Compute's CSV"
)


def located(root: Path) -> Path:
    """The folder itself; if it does not exist, the installed package with aiconfigurator's tables."""
    if root.exists() or str(root) not in _PACKAGES:
        return root
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package.replace("-", "_"))
        for location in (spec.submodule_search_locations or ()) if spec else ():
            if aiconfigurator.recognises(Path(location)):
                return Path(location)
    raise InputError(f"there is no folder {root}, nor is aiconfigurator-core installed: pip install --no-deps {_CORE}")


def reader_of(root: Path) -> tuple[str, ModuleType]:
    """Name and module of the importer for a folder.

    Raises:
        InputError: there is no such folder, or no importer recognises it.
    """
    if not root.exists():
        raise InputError(f"there is no folder {root}; name a table that presim profile wrote or a public dataset")
    for name, module in READERS.items():
        if module.recognises(root):
            return name, module
    raise InputError(
        f"{root} is none of the datasets presim reads: {_KNOWN}; or a folder that presim profile wrote, or a trace of "
        "PyTorch's profiler (.json, .json.gz). Give the top of a dataset's checkout; logs and tables of collectives go "
        "to `presim fit --nccl-tests`"
    )


def digest(root: Path, files: list[Path]) -> str:
    """SHA-256 over names and contents of the files, in order."""
    total = hashlib.sha256()
    for path in files:
        total.update(
            (path.name if path == root else str(path.relative_to(root))).encode()
            + b"\0"
            + bytes.fromhex(digest_of(path))
        )
    return total.hexdigest()


def commit(root: Path) -> str:
    """The dataset's commit from a file COMMIT in or above it, or from git; empty if neither has it.

    For an installed package, its version.
    """
    for info in root.parent.glob(f"{root.name}-*.dist-info"):
        return info.name.removeprefix(f"{root.name}-").removesuffix(".dist-info")
    for line in _commit_lines(root):
        return line[:12]
    return ""


def _commit_lines(root: Path) -> Iterator[str]:
    for folder in (root, root.parent):
        if (folder / "COMMIT").is_file():
            yield from read_text(folder / "COMMIT", "correct it").split()
    git = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    yield from git.stdout.split()


@dataclasses.dataclass(frozen=True)
class ImportedTable:
    """A table with imported rows."""

    path: Path
    gpu: str
    rows: int
    earlier_rows: int  # that it had, and keeps


@dataclasses.dataclass(frozen=True)
class ImportedTables:
    """What an import wrote and left out."""

    tables: tuple[ImportedTable, ...]
    left_out: dict[str, int]  # reason -> rows
    unread: tuple[Path, ...]  # after an interrupt


def describe_import(outcome: ImportedTables) -> list[str]:
    """What was written and left out, in lines."""
    lines = [f"partial: not read are {', '.join(map(str, outcome.unread))}"] if outcome.unread else []
    for file in outcome.tables:
        earlier = f" and {file.earlier_rows} that it had" if file.earlier_rows else ""
        lines.append(f"{file.path}: {file.rows} rows{earlier}")
    return lines + [f"  left out, {count}: {reason}" for reason, count in outcome.left_out.items()]


def import_tables(folders: Sequence[Path], out: Path, *, keeps_finished: bool = False) -> ImportedTables:
    """Write one table for each measured GPU.

    Rows of an earlier import stay, unless the same source now has the same work. ``keeps_finished``: an interrupt gives
    the rows of the folders that are read by then.

    Raises:
        InputError: a folder is of no known kind, no row can be used, or the tables cannot be written.
    """
    check_folder(out)
    intake = Intake()
    folders = [located(folder) for folder in folders]
    readers = [reader_of(folder)[1] for folder in folders]  # all are named rightly before the first is read
    completed: list[Path] = []
    with caught(keeps_finished) as stop:
        for folder, reader in zip(folders, readers, strict=True):
            intake.take(list(getattr(reader, "read_all", reader.read)(folder)))  # a folder is taken as a whole
            completed.append(folder)
    stop.unless(completed)
    single_work_rows = [row for row in intake.accepted if not row.other_work]
    if not single_work_rows:
        why = "; ".join(f"{count}: {reason}" for reason, count in sorted(intake.rejected.items()))
        raise InputError(f"no row can be used: {why or 'there are none'}")
    make_folder(out)
    origin = {folder.name: commit(folder) for folder in completed}
    tables: list[ImportedTable] = []
    for gpu in sorted({row.gpu for row in single_work_rows}):
        rows = [row for row in single_work_rows if row.gpu == gpu]
        path = out / f"{gpu}.imported{table.SUFFIX}"
        earlier_rows = _earlier_rows(path, rows)
        table.write([*earlier_rows, *rows], path, {**(table.origin_of(path) if earlier_rows else {}), **origin})
        tables.append(ImportedTable(path, gpu, len(rows), len(earlier_rows)))
    mixed_rows = len(intake.accepted) - len(single_work_rows)
    intake.rejected["a time that holds other work too"] += mixed_rows
    left_out = {reason: count for reason, count in sorted(intake.rejected.items()) if count}
    return ImportedTables(tuple(tables), left_out, tuple(folders[len(completed) :]))


def _earlier_rows(path: Path, rows: Sequence[Measurement]) -> list[Measurement]:
    """Rows of an earlier import that the new ones do not replace."""
    if not path.exists():
        return []
    replaced = {(row.source, row.signature) for row in rows}
    return [row for row in table.read([path]).rows if (row.source, row.signature) not in replaced]
