"""Saved jobs: a directory of traces that other machines and later versions can read.

::

    DIR/job.json                {"magic": "presim-trace", "version": 1, "digest": …, "job": {
                                    "manifest": JobManifest, "files": [{rank, name, bytes, digest}, …]}}
    DIR/rank-00000-<digest>.parquet
                                columns as in presim.trace.schema (Parquet, zstd); file metadata `presim-trace`:
                                {"magic", "version", "manifest", "signatures", "scopes", "operators"}
    DIR/wider/                  the same job captured on more ranks, if `presim run --wider` was asked for it

Rank files carry their digest in their names and are never written over; replacing ``job.json`` is the one step that
makes a save visible. So a full disk or Ctrl-C leaves the job that was there before, or none. Digests are looked at
before anything is parsed: Parquet readers are not made for damaged files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from presim.errors import InputError
from presim.system.files import FormatError, decode_json, names_file, read_bytes, shortened, write_file
from presim.system.files.field_bounds import Bytes, Count
from presim.trace import rank_file, spans
from presim.trace.coverage import RankCoverage
from presim.trace.schema import ClusterTables, Trace
from presim.trace.versioned_json import MAGIC, VERSION, Header, decode, digest, encode

JOB_FILE = "job.json"
WIDER = "wider"  # subfolder: the same job captured on more ranks, if any; a new job in the folder removes it


class JobManifest(msgspec.Struct, frozen=True):
    """Facts about the whole job."""

    world_size: Count
    gpu: str  # catalogue id of the emulated GPU
    gpus_per_node: Count
    script: str
    stands_for: dict[Count, str] = {}  # captured rank -> the other ranks that do as it does (presim.trace.spans)
    coverage: RankCoverage = RankCoverage()
    checked: str = ""  # of older jobs: ranks whose first step was compared; `load` moves it into `coverage`
    notes: tuple[str, ...] = ()  # what a reader should know of the ranks, as sentences
    node: str = ""  # id of the node type, catalogued or the user's own; empty: not said
    fabric: str = ""  # likewise
    cluster_tables: ClusterTables = ClusterTables()

    def others(self) -> dict[int, list[int]]:
        """`stands_for`, rank by rank."""
        return {rank: spans.from_text(text) for rank, text in self.stands_for.items()}


@dataclasses.dataclass(frozen=True)
class StoredJob:
    """The traces of a job's captured ranks, in ascending order of rank."""

    manifest: JobManifest
    traces: dict[int, Trace]


class _File(msgspec.Struct, frozen=True):
    rank: Count
    name: str
    bytes: Bytes
    digest: str


class _Body(msgspec.Struct, frozen=True):
    manifest: JobManifest
    files: tuple[_File, ...]


class _JobFile(Header, frozen=True):
    digest: str  # of `job` as compact JSON with sorted keys
    job: _Body


def save(
    traces: Sequence[Trace],
    directory: str | os.PathLike[str],
    *,
    stands_for: Mapping[int, Sequence[int]] | None = None,
    coverage: RankCoverage | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Write the traces of one job, replacing the job that was in ``directory`` before."""
    represented_ranks = {rank: spans.to_text(ranks) for rank, ranks in (stands_for or {}).items() if ranks}
    manifest = msgspec.structs.replace(
        _job_manifest(traces), stands_for=represented_ranks, coverage=coverage or RankCoverage(), notes=tuple(notes)
    )
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier_files = {path.name for path in folder.glob("rank-*.parquet")}
        files: list[_File] = []
        try:
            for trace in sorted(traces, key=lambda trace: trace.manifest.rank):
                files.append(_write_rank(trace, folder))
            _remove_job(folder / WIDER)
            _write_job(_Body(manifest, tuple(files)), folder)
        except BaseException:
            _remove(folder, {file.name for file in files} - earlier_files)
            raise
        _remove(folder, earlier_files - {file.name for file in files})
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot save the trace to {folder}: {reason}; free some space or choose another directory"
        ) from error


def check_writable(directory: str | os.PathLike[str]) -> None:
    """Raise the errors that `save` would raise, before a long capture."""
    if not os.fspath(directory):
        raise InputError("the name of the directory for the trace is empty; choose one")
    folder = Path(directory)
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        why = "is not writable" if nearest.is_dir() else "is a file"
        raise InputError(f"cannot save the trace to {folder}: {nearest} {why}; choose another directory")


def owns(directory: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Whether a file belongs to the job in ``directory``."""
    folder, name = os.path.split(os.path.realpath(path))
    return folder == os.path.realpath(directory) and (name == JOB_FILE or name.endswith(".parquet"))


def load(directory: str | os.PathLike[str], *, ranks: Collection[int] | None = None) -> StoredJob:
    """Read a job, or some of its ranks; a bad file raises an `InputError` of one sentence."""
    folder = Path(directory)
    body = _read_job(folder)
    saved_ranks = {file.rank for file in body.files}
    missing = sorted(set(ranks or ()) - saved_ranks)
    if missing:
        raise InputError(f"{folder} has no trace of rank {missing[0]}; it has {sorted(saved_ranks)}")
    requested_ranks = saved_ranks if ranks is None else set(ranks)
    return StoredJob(
        body.manifest, {file.rank: _read_rank(folder, file) for file in body.files if file.rank in requested_ranks}
    )


def incompleteness(directory: str | os.PathLike[str]) -> str:
    """Why a job cannot be read, as far as its first file and the sizes of the others show; empty: it can."""
    folder = Path(directory)
    try:
        for file in _read_job(folder).files:
            _check_size(folder / file.name, file)
    except InputError as error:
        return str(error)
    return ""


def _job_manifest(traces: Sequence[Trace]) -> JobManifest:
    ranks = [trace.manifest.rank for trace in traces]
    if not ranks or len(set(ranks)) != len(ranks):
        raise ValueError(f"a job has one trace for each of its ranks, got ranks {ranks}")
    first = traces[0].manifest
    return JobManifest(
        first.world_size,
        first.gpu,
        first.gpus_per_node,
        first.script,
        node=first.node,
        fabric=first.fabric,
        cluster_tables=first.cluster_tables,
    )


# Writing


def _write_rank(trace: Trace, folder: Path) -> _File:
    rank = trace.manifest.rank
    data = rank_file.encode(trace)
    file = _File(rank, f"rank-{rank:05d}-{digest(data)[:8]}.parquet", len(data), digest(data))
    write_file(folder / file.name, data)
    return file


def _write_job(body: _Body, folder: Path) -> None:
    content = encode(_JobFile(MAGIC, VERSION, _body_digest(body), body))
    write_file(folder / JOB_FILE, msgspec.json.format(content) + b"\n")


def _remove(folder: Path, names: set[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _remove_job(folder: Path) -> None:
    if names_file(folder / JOB_FILE):
        _remove(folder, {JOB_FILE, *(path.name for path in folder.glob("rank-*.parquet"))})


# Reading


def _read_job(folder: Path) -> _Body:
    path = folder / JOB_FILE
    if names_file(folder):
        raise InputError(
            f"{folder} is a file, but a trace is a folder; if it is a result, show it with `presim report {folder}`"
        )
    if not names_file(path):
        raise InputError(
            f"{shortened(folder)} holds no trace (there is no {JOB_FILE} in it); make one with "
            f"`presim run --save {shortened(folder)} …`"
        )
    data = _read(path)
    content = decode(data, _JobFile, path)
    if content.digest != _digest_of_job(data):
        raise InputError(f"{path} is damaged (its digest does not fit its content); copy or capture the trace again")
    return _Body(_with_coverage(content.job.manifest), content.job.files)


def _with_coverage(manifest: JobManifest) -> JobManifest:
    """The manifest of a job older than `RankCoverage`: its compared ranks ran one step."""
    if not manifest.checked:
        return manifest
    return msgspec.structs.replace(manifest, coverage=RankCoverage(compared=manifest.checked), checked="")


def _digest_of_job(data: bytes) -> str:
    """The digest of the file's own fields, so that files without newer fields stay valid."""
    try:
        return digest(msgspec.json.encode(decode_json(data)["job"], order="sorted"))
    except FormatError:  # in the name of an unknown field, which the decoder skips
        return ""


def _read_rank(folder: Path, file: _File) -> Trace:
    path = folder / file.name
    _check_size(path, file)
    data = _read(path)
    if digest(data) != file.digest:
        raise InputError(f"{path} is damaged (its digest does not fit its content); copy or capture the trace again")
    return rank_file.parse(data, path)


def _check_size(path: Path, file: _File) -> None:
    if not names_file(path):
        raise InputError(
            f"{shortened(path)} is missing, though {JOB_FILE} names it; copy the whole directory or capture the trace "
            "again"
        )
    size_bytes = path.stat().st_size
    if size_bytes < file.bytes:
        raise InputError(f"{path} is cut short ({size_bytes} of {file.bytes} bytes); copy or capture the trace again")


def _read(path: Path) -> bytes:
    return read_bytes(path, "check its permissions")


def _body_digest(body: _Body) -> str:
    return digest(encode(body))
