"""Saving and reading a job directory."""

from __future__ import annotations

import errno
import json
import pathlib
import re
from typing import Any

import msgspec
import pytest

from presim.errors import InputError
from presim.trace import job_store, rank_file, versioned_json
from presim.trace.builder import TraceBuilder
from presim.trace.coverage import RankCoverage
from presim.trace.schema import COLUMNS, Manifest, Trace
from presim.trace.signatures import Collective, Gemm
from presim.trace.versioned_json import digest


def small_trace(rank: int = 0) -> Trace:
    build = TraceBuilder(Manifest(world_size=4, rank=rank, gpu="h100-sxm", gpus_per_node=4, script="train.py"))
    build.work(Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16"), host_ns=5_000, scope="layers.0", operator="aten::mm")
    reduce = Collective(kind="all_reduce", bytes=1 << 20, dtype="bfloat16", group=0)
    build.work(reduce, stream=1, site="train.py:12")
    build.alloc(0x7F0000000000, 4096)
    build.device_sync()
    build.step()
    return build.trace()


def same(left: Trace, right: Trace) -> bool:
    tables = ("manifest", "signatures", "scopes", "operators", "sites")
    return all(getattr(left, name) == getattr(right, name) for name in tables) and all(
        left.columns[name].dtype == right.columns[name].dtype
        and left.columns[name].tolist() == right.columns[name].tolist()
        for name in COLUMNS
    )


def files(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_job_of_several_ranks_comes_back_equal(tmp_path: pathlib.Path) -> None:
    coverage = RankCoverage("every rank ran", compared="3", steps=2, rank_reads=("train.py:3 (RANK)",))
    others = {0: (1,), 2: (3,)}
    traces = [small_trace(2), small_trace(0)]
    job_store.save(traces, tmp_path / "job", stands_for=others, coverage=coverage, notes=("one",))
    job = job_store.load(tmp_path / "job")
    assert list(job.traces) == [0, 2]
    assert all(same(job.traces[rank], small_trace(rank)) for rank in job.traces)
    assert job.manifest == job_store.JobManifest(
        4, "h100-sxm", 4, "train.py", {0: "1", 2: "3"}, coverage, notes=("one",)
    )
    assert job.manifest.others() == {0: [1], 2: [3]}


def test_a_job_saved_before_coverage_was_kept_says_what_was_compared(tmp_path: pathlib.Path) -> None:
    """Its sampled ranks ran for one step."""
    job_store.save([small_trace(0)], tmp_path)
    path = tmp_path / job_store.JOB_FILE
    saved = json.loads(path.read_bytes())
    manifest = saved["job"]["manifest"]
    del manifest["coverage"]
    manifest["checked"] = "1:4:1"
    saved["digest"] = digest(msgspec.json.encode(saved["job"], order="sorted"))
    path.write_text(json.dumps(saved))
    coverage = job_store.load(tmp_path).manifest.coverage
    assert (coverage.compared_ranks(), coverage.steps, coverage.rule) == ([1, 2, 3], 1, "")


def test_only_the_ranks_asked_for_are_read(tmp_path: pathlib.Path) -> None:
    job_store.save([small_trace(0), small_trace(1)], tmp_path)
    assert list(job_store.load(tmp_path, ranks=[1]).traces) == [1]
    with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))} has no trace of rank 7; it has \\[0, 1\\]$"):
        job_store.load(tmp_path, ranks=[7])


def test_saving_twice_gives_the_same_bytes_and_leaves_no_old_files(tmp_path: pathlib.Path) -> None:
    job_store.save([small_trace(0), small_trace(1)], tmp_path)
    job_store.save([small_trace(0)], tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    job_store.save([small_trace(0)], tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    assert len(first) == 2


def test_an_empty_trace_comes_back_equal(tmp_path: pathlib.Path) -> None:
    job_store.save([TraceBuilder().trace()], tmp_path)
    assert same(job_store.load(tmp_path).traces[0], TraceBuilder().trace())


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["rank_file.encode", "_write_job"])
def test_a_save_that_is_cut_off_leaves_what_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, step: str
) -> None:
    job_store.save([small_trace(0)], tmp_path)
    before = files(tmp_path)

    def fail(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(f"presim.trace.job_store.{step}", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        job_store.save([small_trace(0), small_trace(1)], tmp_path)
    assert files(tmp_path) == before
    assert same(job_store.load(tmp_path).traces[0], small_trace(0))


def test_a_full_disk_is_said_in_one_sentence(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rank_file, "encode", fail)
    expected = (
        f"cannot save the trace to {tmp_path}: No space left on device; free some space or choose another directory"
    )
    with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
        job_store.save([small_trace()], tmp_path)
    assert files(tmp_path) == set()


def rewrite_job(folder: pathlib.Path, **changes: Any) -> None:
    content = msgspec.json.decode((folder / "job.json").read_bytes())
    content.update(changes)
    (folder / "job.json").write_bytes(msgspec.json.encode(content))


def test_each_kind_of_bad_directory_is_told_apart(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"holds no trace \(there is no job\.json in it\); make one with"):
        job_store.load(tmp_path)
    job_store.save([small_trace()], tmp_path)
    rewrite_job(tmp_path, version=99)
    with pytest.raises(InputError, match=r"written by a newer presim \(format 99, this one reads 1\); upgrade presim$"):
        job_store.load(tmp_path)
    rewrite_job(tmp_path, version=1, magic="other")
    with pytest.raises(InputError, match=r"is not a trace of presim's \(magic 'other'\); capture one with"):
        job_store.load(tmp_path)
    rewrite_job(tmp_path, magic=versioned_json.MAGIC, digest="00")
    with pytest.raises(InputError, match=r"job\.json is damaged"):
        job_store.load(tmp_path)


def test_a_rank_file_that_is_gone_short_or_changed_is_told_apart(tmp_path: pathlib.Path) -> None:
    job_store.save([small_trace()], tmp_path)
    (path,) = tmp_path.glob("rank-*.parquet")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=f"is cut short .{len(data) // 2} of {len(data)} bytes.; copy or capture"):
        job_store.load(tmp_path)
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(InputError, match="is damaged"):
        job_store.load(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"is missing, though job\.json names it"):
        job_store.load(tmp_path)


def test_a_job_from_before_a_field_was_added_is_whole(tmp_path: pathlib.Path) -> None:
    """Its digest is of what stands in the file; the field has its default."""
    job_store.save([small_trace()], tmp_path)
    content = msgspec.json.decode((tmp_path / job_store.JOB_FILE).read_bytes())
    del content["job"]["manifest"]["notes"]
    content["digest"] = versioned_json.digest(msgspec.json.encode(content["job"], order="sorted"))
    (tmp_path / job_store.JOB_FILE).write_bytes(msgspec.json.encode(content))
    assert same(job_store.load(tmp_path).traces[0], small_trace())
