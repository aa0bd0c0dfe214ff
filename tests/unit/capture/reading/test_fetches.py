"""Times of data loaders' workers in a log."""

from __future__ import annotations

from pathlib import Path

from presim.capture.reading.fetches import LIVE, TIMES, times_file, with_fetch_times
from presim.trace.schema import Kind, fetch_request
from support.capture_logs import LogBuilder


def test_each_request_takes_what_its_worker_measured(tmp_path: Path) -> None:
    """Time asleep is a FETCH of its own. A request that was not finished takes none."""
    build = LogBuilder()
    for worker, number in ((0, 0), (1, 0), (0, 1), (1, 1)):
        build.record(Kind.FETCH, object=fetch_request(2, worker, number))
        build.record(Kind.WORK)
    Path(f"{times_file(tmp_path, 2)}-0").write_bytes(TIMES.pack(100, 0) + TIMES.pack(200, 50))
    Path(f"{times_file(tmp_path, 2)}-1").write_bytes(TIMES.pack(300, 0) + b"cut")
    records = with_fetch_times(build.log(), tmp_path).records
    fetches = records[records["kind"] == Kind.FETCH]
    assert list(zip(fetches["value"].tolist(), fetches["stream"].tolist())) == [
        (100, 0),
        (300, 0),
        (200, 0),
        (50, 1),
        (0, 0),
    ]
    assert fetches["object"][2] == fetches["object"][3]


def test_a_log_without_requests_is_left_as_it_is(tmp_path: Path) -> None:
    build = LogBuilder()
    build.record(Kind.WORK)
    log = build.log()
    assert with_fetch_times(log, tmp_path) is log


def test_sleeps_until_a_batch_is_ready_are_those_of_a_live_clock(tmp_path: Path) -> None:
    """Without it, a host that sleeps after a wait does so by itself."""
    build = LogBuilder()
    build.record(Kind.FETCH, object=fetch_request(0, 0, 0))
    for kind in (Kind.FETCH_WAIT, Kind.HOST_WAIT, Kind.HOST_WAIT, Kind.WORK, Kind.HOST_WAIT):
        build.record(kind)
    assert len(with_fetch_times(build.log(), tmp_path).records) == 6
    (tmp_path / LIVE).touch()
    kinds = with_fetch_times(build.log(), tmp_path).records["kind"].tolist()
    assert kinds == [Kind.FETCH, Kind.FETCH_WAIT, Kind.HOST_WAIT, Kind.WORK, Kind.HOST_WAIT]
