"""Properties of the files of a job."""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import traces

from presim.errors import InputError
from presim.trace import job_store, rank_file
from presim.trace.builder import TraceBuilder
from presim.trace.schema import COLUMNS, Trace
from presim.trace.signatures import Collective, Copy
from support.long_cases import examples


def same(left: Trace, right: Trace) -> bool:
    tables = ("manifest", "signatures", "scopes", "operators", "sites")
    return all(getattr(left, name) == getattr(right, name) for name in tables) and all(
        left.columns[name].dtype == right.columns[name].dtype
        and np.array_equal(left.columns[name], right.columns[name])
        for name in COLUMNS
    )


@given(traces())
@settings(deadline=None, max_examples=examples(20))
def test_saving_and_reading_is_identity(trace: Trace) -> None:
    """Whatever is in a trace comes back equal, in values and types."""
    with tempfile.TemporaryDirectory() as folder:
        job_store.save([trace], folder)
        assert same(job_store.load(folder).traces[trace.manifest.rank], trace)


def _saved(folder: pathlib.Path) -> tuple[Trace, dict[str, bytes]]:
    build = TraceBuilder()
    for index in range(40):
        build.work(Copy(direction="h2d", bytes=index % 5), host_ns=index, scope=f"layer.{index % 3}")
        build.work(Collective(kind="all_reduce", bytes=index, dtype="float32", group=0), stream=1)
    job_store.save([build.trace()], folder)
    return build.trace(), {path.name: path.read_bytes() for path in folder.iterdir()}


@given(st.data())
@settings(deadline=None, max_examples=examples(100))
def test_a_damaged_job_is_read_right_or_refused(data: st.DataObject) -> None:
    """Flipped bytes and cut files give an `InputError` or, where they do not matter, the very same trace."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trace, files = _saved(folder)
        victim = data.draw(st.sampled_from(sorted(files)))
        (folder / victim).write_bytes(_damaged(data, files[victim]))
        try:
            assert same(job_store.load(folder).traces[0], trace)
        except InputError as error:
            assert "\n" not in str(error)


@given(st.data())
@settings(deadline=None, max_examples=examples(100))
def test_a_cut_rank_file_is_refused_even_where_its_digest_is_not_looked_at(data: st.DataObject) -> None:
    """The reader itself gives nothing but `InputError` on a file that ends early."""
    with tempfile.TemporaryDirectory() as name:
        _, files = _saved(pathlib.Path(name))
    (content,) = (content for file, content in files.items() if file.endswith(".parquet"))
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    try:
        rank_file.parse(cut, pathlib.Path("rank.parquet"))
        raise AssertionError("a cut file was read")
    except InputError:
        pass


def _damaged(data: st.DataObject, content: bytes) -> bytes:
    if data.draw(st.booleans()):
        return content[: data.draw(st.integers(0, len(content) - 1))]
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    return bytes(damaged)
