"""A job on disk: a directory of its traces that another machine can read, tomorrow.

::

    DIR/job.json                {"magic": "presim-trace", "version": 1, "digest": …, "job": {
                                    "manifest": JobManifest, "files": [{rank, name, bytes, digest}, …]}}
    DIR/rank-00000-<digest>.parquet
                                columns as in presim.trace.schema (Parquet, zstd); file metadata `presim-trace`:
                                {"magic", "version", "manifest", "signatures", "scopes", "operators"}

Rank files carry their digest in their names and are never written over; replacing ``job.json`` is the one step that
makes a save visible. So a full disk or Ctrl-C leaves the job that was there before, or none. Digests are looked at
before anything is parsed: Parquet readers are not made for damaged files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.trace import spans
from presim.trace.check import check
from presim.trace.schema import COLUMNS, Manifest, Trace
from presim.trace.signatures import Signature

if TYPE_CHECKING:
    import pyarrow

MAGIC = "presim-trace"
VERSION = 1
JOB_FILE = "job.json"


class JobManifest(msgspec.Struct, frozen=True):
    """What holds for the job as a whole."""

    world_size: int
    gpu: str  # catalogue id of the emulated GPU
    gpus_per_node: int
    script: str
    stands_for: dict[int, str] = {}  # captured rank -> the other ranks that do as it does (presim.trace.spans)
    checked: str = ""  # ranks that were found to do so (presim.trace.spans)
    notes: tuple[str, ...] = ()  # what a reader should know of the ranks, as sentences
    node: str = ""  # id of the node type, catalogued or the user's own; empty: not said
    fabric: str = ""  # likewise

    def others(self) -> dict[int, list[int]]:
        """`stands_for`, rank by rank."""
        return {rank: spans.from_text(text) for rank, text in self.stands_for.items()}


@dataclasses.dataclass(frozen=True)
class Job:
    """The traces of a job's captured ranks, in ascending order of rank."""

    manifest: JobManifest
    traces: dict[int, Trace]


class _File(msgspec.Struct, frozen=True):
    rank: int
    name: str
    bytes: int
    digest: str


class _Body(msgspec.Struct, frozen=True):
    manifest: JobManifest
    files: tuple[_File, ...]


class _Header(msgspec.Struct, frozen=True):
    magic: str
    version: int


class _JobFile(_Header, frozen=True):
    digest: str  # of `job` as compact JSON with sorted keys
    job: _Body


class _Tables(_Header, frozen=True):
    manifest: Manifest
    signatures: tuple[Signature, ...]
    scopes: tuple[str, ...]
    operators: tuple[str, ...]
    sites: tuple[str, ...] = ()


_Read = TypeVar("_Read", bound=_Header)


def save(
    traces: Sequence[Trace],
    directory: str | os.PathLike[str],
    *,
    stands_for: Mapping[int, Sequence[int]] | None = None,
    checked: Sequence[int] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write the traces of one job, replacing the job that was in ``directory`` before."""
    others = {rank: spans.to_text(ranks) for rank, ranks in (stands_for or {}).items() if ranks}
    manifest = msgspec.structs.replace(
        _job_manifest(traces), stands_for=others, checked=spans.to_text(checked), notes=tuple(notes)
    )
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = {path.name for path in folder.glob("rank-*.parquet")}
        files: list[_File] = []
        try:
            for trace in sorted(traces, key=lambda trace: trace.manifest.rank):
                files.append(_write_rank(trace, folder))
            _write_job(_Body(manifest, tuple(files)), folder)
        except BaseException:
            _remove(folder, {file.name for file in files} - before)
            raise
        _remove(folder, before - {file.name for file in files})
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot save the trace to {folder}: {reason}; free some space or choose another directory"
        ) from error


def check_writable(directory: str | os.PathLike[str]) -> None:
    """Raise now what `save` would raise later: before a capture of minutes rather than after it."""
    folder = Path(directory)
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        why = "is not writable" if nearest.is_dir() else "is a file"
        raise InputError(f"cannot save the trace to {folder}: {nearest} {why}; choose another directory")


def load(directory: str | os.PathLike[str], *, ranks: Collection[int] | None = None) -> Job:
    """Read a job, or only some of its ranks; whatever is wrong with it is an `InputError` of one sentence."""
    folder = Path(directory)
    body = _read_job(folder)
    known = {file.rank for file in body.files}
    missing = sorted(set(ranks or ()) - known)
    if missing:
        raise InputError(f"{folder} has no trace of rank {missing[0]}; it has {sorted(known)}")
    wanted = known if ranks is None else set(ranks)
    return Job(body.manifest, {file.rank: _read_rank(folder, file) for file in body.files if file.rank in wanted})


def _job_manifest(traces: Sequence[Trace]) -> JobManifest:
    ranks = [trace.manifest.rank for trace in traces]
    if not ranks or len(set(ranks)) != len(ranks):
        raise ValueError(f"a job has one trace for each of its ranks, got ranks {ranks}")
    first = traces[0].manifest
    return JobManifest(
        first.world_size, first.gpu, first.gpus_per_node, first.script, node=first.node, fabric=first.fabric
    )


# Writing


def _write_rank(trace: Trace, folder: Path) -> _File:
    rank = trace.manifest.rank
    with _temporary(folder) as temporary:
        _write_parquet(trace, temporary)
        data = temporary.read_bytes()
        file = _File(rank, f"rank-{rank:05d}-{_digest(data)[:8]}.parquet", len(data), _digest(data))
        os.replace(temporary, folder / file.name)
    return file


def _write_parquet(trace: Trace, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = _Tables(MAGIC, VERSION, trace.manifest, trace.signatures, trace.scopes, trace.operators, trace.sites)
    table = pa.table({name: trace.columns[name] for name in COLUMNS})
    # Measured on a step of 120,000 entries with 500 addresses: 0.44 MB; plain encoding 0.59 MB, delta-encoded
    # addresses 0.68 MB (addresses and serials repeat far more than they grow). Levels above 3 gain 1 %.
    with pq.ParquetWriter(
        path,
        table.schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[name for name in COLUMNS if name != "host_ns"],
        column_encoding={"host_ns": "DELTA_BINARY_PACKED"},
        store_schema=False,
        write_statistics=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({MAGIC: _encode(tables).decode()})


def _write_job(body: _Body, folder: Path) -> None:
    content = _encode(_JobFile(MAGIC, VERSION, _body_digest(body), body))
    with _temporary(folder) as temporary:
        temporary.write_bytes(msgspec.json.format(content) + b"\n")
        os.replace(temporary, folder / JOB_FILE)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """An empty file of its own in ``folder``, gone afterwards unless it was renamed."""
    handle, name = tempfile.mkstemp(prefix=".presim-", dir=folder)
    os.close(handle)
    path = Path(name)
    try:
        path.chmod(0o644)  # mkstemp's 0600 would keep colleagues from reading a shared trace
        yield path
    finally:
        path.unlink(missing_ok=True)


def _remove(folder: Path, names: set[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


# Reading


def _read_job(folder: Path) -> _Body:
    path = folder / JOB_FILE
    if not path.is_file():
        raise InputError(
            f"{folder} holds no trace (there is no {JOB_FILE} in it); make one with `presim run --save {folder} …`"
        )
    data = _read(path)
    content = _decode(data, _JobFile, path)
    # Of what stands there, not of what was read: a file from before a field was added is whole.
    if content.digest != _digest(msgspec.json.encode(msgspec.json.decode(data)["job"], order="sorted")):
        raise InputError(f"{path} is damaged (its digest does not fit its content); copy or capture the trace again")
    return content.job


def _read_rank(folder: Path, file: _File) -> Trace:
    path = folder / file.name
    if not path.is_file():
        raise InputError(
            f"{path} is missing, though {JOB_FILE} names it; copy the whole directory or capture the trace again"
        )
    data = _read(path)
    if len(data) < file.bytes:
        raise InputError(f"{path} is cut short ({len(data)} of {file.bytes} bytes); copy or capture the trace again")
    if _digest(data) != file.digest:
        raise InputError(f"{path} is damaged (its digest does not fit its content); copy or capture the trace again")
    return parse(data, path)


def parse(data: bytes, path: Path) -> Trace:
    """The trace in the bytes of one rank's file; ``path`` is for messages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            table = file.read(use_threads=False)
            metadata = (file.metadata.metadata or {}).get(MAGIC.encode())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a Parquet file presim can read ({_first_line(error)}); capture the trace again"
        ) from error
    if metadata is None:
        raise InputError(
            f"{path} is a Parquet file, but not one of presim's traces; capture one with `presim run --save`"
        )
    tables = _decode(metadata, _Tables, path)
    columns = _columns(table, path)
    trace = Trace(tables.manifest, tables.signatures, tables.scopes, tables.operators, columns, tables.sites)
    check(trace)
    return trace


def _columns(table: pyarrow.Table, path: Path) -> dict[str, NDArray[np.generic]]:
    columns: dict[str, NDArray[np.generic]] = {}
    for name, dtype in COLUMNS.items():
        column = table.column(name).to_numpy() if name in table.column_names else None
        if name == "site" and column is None:  # a trace from before lines were kept
            column = np.full(len(table), -1, dtype)
        if column is None or column.dtype != np.dtype(dtype):
            raise InputError(f"{path} has no column {name!r} of type {np.dtype(dtype)}; capture the trace again")
        columns[name] = column
    return columns


def _decode(data: bytes, type_: type[_Read], path: Path) -> _Read:
    """JSON to a struct with magic and version, which are looked at before the rest."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not a trace of presim's ({_first_line(error)}); capture one with `presim run --save`"
        ) from error
    if header.magic != MAGIC:
        raise InputError(
            f"{path} is not a trace of presim's (magic {header.magic!r}); capture one with `presim run --save`"
        )
    if header.version > VERSION:
        raise InputError(
            f"{path} was written by a newer presim (format {header.version}, this one reads {VERSION}); upgrade presim"
        )
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged ({_first_line(error)}); copy or capture the trace again") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check its permissions") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip() or type(error).__name__


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _body_digest(body: _Body) -> str:
    return _digest(_encode(body))


def _encode(value: msgspec.Struct) -> bytes:
    """JSON with sorted keys, so that files diff; by way of builtins because msgspec does not sort integer keys."""
    return msgspec.json.encode(msgspec.to_builtins(value, str_keys=True), order="sorted")
