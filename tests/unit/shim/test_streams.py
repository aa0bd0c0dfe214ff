"""Streams, events, host functions, capture and graphs."""

from __future__ import annotations

import pytest

from support import emulated

WORK, RECORD, WAIT, EVENT_SYNC, STREAM_SYNC, DEVICE_SYNC = 0, 2, 3, 4, 5, 6

CODE = """
from ctypes import CFUNCTYPE, byref, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p, create_string_buffer
import threading

rt = ctypes.CDLL("libcudart.so.13")

def stream(priority=0, flags=1):
    out = c_void_p()
    assert rt.cudaStreamCreateWithPriority(byref(out), flags, priority) == 0
    return out

def event(flags=2):
    out = c_void_p()
    assert rt.cudaEventCreateWithFlags(byref(out), flags) == 0
    return out

block = c_void_p()
rt.cudaMalloc(byref(block), c_size_t(1 << 20))

def work(on, size=64):
    return rt.cudaMemsetAsync(block, 0, c_size_t(size), on)

a, b = stream(-2), stream(-99)
priority = c_int()
rt.cudaStreamGetPriority(b, byref(priority))
results["clamped priority"] = priority.value

with section("order"):
    first = event()
    results["never recorded"] = [rt.cudaStreamWaitEvent(b, first, 0), rt.cudaEventQuery(first),
                                 rt.cudaEventSynchronize(first)]
    rt.cudaEventRecord(first, a)
    rt.cudaEventRecord(first, a)
    rt.cudaStreamWaitEvent(b, first, 0)
    work(b)
    rt.cudaEventSynchronize(first)
    rt.cudaStreamSynchronize(b)
    rt.cudaDeviceSynchronize()

timed = [event(0), event(0)]
elapsed = c_float(-1)
results["unrecorded time"] = rt.cudaEventElapsedTime(byref(elapsed), *timed)
for each in timed:
    rt.cudaEventRecord(each, None)
results["time"] = [rt.cudaEventElapsedTime(byref(elapsed), *timed), elapsed.value > 0]
results["no time"] = rt.cudaEventElapsedTime(byref(elapsed), first, first)

gone, dropped = stream(), event()
results["destroy"] = [rt.cudaStreamDestroy(gone), rt.cudaStreamDestroy(gone), rt.cudaEventDestroy(dropped),
                      rt.cudaEventDestroy(dropped)]
results["destroyed"] = [work(gone), rt.cudaStreamSynchronize(gone), rt.cudaEventRecord(dropped, None),
                        rt.cudaStreamWaitEvent(None, dropped, 0), rt.cudaEventRecord(first, gone)]
results["garbage"] = [work(c_void_p(0x1234560)), rt.cudaEventQuery(c_void_p(0x7fff12345678))]

called = []
HOST = CFUNCTYPE(None, c_void_p)
host = HOST(lambda data: called.append(data))
rt.cudaLaunchHostFunc(a, host, c_void_p(5))
results["host function"] = list(called)

# A graph capture that forks to stream b and joins again; the replay runs in stream c.
graph, execution, c = c_void_p(), c_void_p(), stream()
status, info = c_int(), c_ulonglong()
with section("capture"):
    assert rt.cudaStreamBeginCapture(a, 2) == 0
    work(a, 1)
    fork, join = event(), event()
    rt.cudaEventRecord(fork, a)
    rt.cudaStreamWaitEvent(b, fork, 0)
    rt.cudaStreamIsCapturing(b, byref(status))
    results["joined"] = status.value
    work(b, 2)
    rt.cudaLaunchHostFunc(b, host, c_void_p(6))
    results["captured query"] = rt.cudaEventQuery(fork)
    rt.cudaEventRecord(join, b)
    rt.cudaStreamWaitEvent(a, join, 0)
    work(a, 3)
    count = c_size_t()
    results["end elsewhere"] = rt.cudaStreamEndCapture(b, byref(graph))
    results["end"] = rt.cudaStreamEndCapture(a, byref(graph))
    rt.cudaStreamIsCapturing(b, byref(status))
    results["left"] = status.value
results["not yet called"] = list(called)
rt.cudaGraphGetNodes(graph, None, byref(count))
results["nodes"] = count.value
assert rt.cudaGraphInstantiateWithFlags(byref(execution), graph, c_ulonglong(0)) == 0
results["destroy graph"] = [rt.cudaGraphDestroy(graph), rt.cudaGraphDestroy(graph)]
with section("replay"):
    for _ in range(2):
        assert rt.cudaGraphLaunch(execution, c) == 0
results["called by replay"] = called[1:]
results["destroy exec"] = [rt.cudaGraphExecDestroy(execution), rt.cudaGraphLaunch(execution, c)]

def captured(body, mode=0):
    assert rt.cudaStreamBeginCapture(a, mode) == 0
    inner = body()
    return [inner, rt.cudaStreamEndCapture(a, byref(graph))]

def unjoined():
    rt.cudaEventRecord(fork, a)
    rt.cudaStreamWaitEvent(b, fork, 0)
    return work(b)

def in_thread(call):
    answer = []
    thread = threading.Thread(target=lambda: answer.append(call()))
    thread.start()
    thread.join()
    return answer[0]

def relaxed():
    mode = c_int(2)
    rt.cudaThreadExchangeStreamCaptureMode(byref(mode))
    try:
        return rt.cudaMalloc(byref(c_void_p()), c_size_t(512))
    finally:
        rt.cudaThreadExchangeStreamCaptureMode(byref(mode))

allocate = lambda: rt.cudaMalloc(byref(c_void_p()), c_size_t(512))
results["not capturing"] = rt.cudaStreamEndCapture(a, byref(graph))
results["capture of default"] = rt.cudaStreamBeginCapture(None, 0)
results["wait inside"] = captured(lambda: rt.cudaStreamSynchronize(a))
results["malloc inside"] = captured(allocate)
results["malloc elsewhere"] = captured(lambda: in_thread(allocate))
results["malloc elsewhere, local"] = captured(lambda: in_thread(allocate), 1)
results["malloc relaxed"] = captured(relaxed)
results["unjoined"] = captured(unjoined)
results["begin twice"] = captured(lambda: rt.cudaStreamBeginCapture(a, 0))
results["outside event"] = captured(lambda: rt.cudaStreamWaitEvent(a, first, 0))
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process makes all the calls."""
    return emulated.run(CODE, tmp_path_factory.mktemp("streams"))


def entries(captured: emulated.Captured, section: str) -> list[tuple[int, int, int, str]]:
    """Kind, stream, object and descriptor of a section's records."""
    first, end = captured.sections[section]
    texts = captured.log.texts
    return [
        (int(r["kind"]), int(r["stream"]), int(r["object"]), texts[r["work"]] if r["work"] >= 0 else "")
        for r in captured.log.records[first:end]
    ]


def test_each_event_record_has_its_own_serial(captured: emulated.Captured) -> None:
    """A wait refers to the latest record; waiting for an unrecorded event does nothing."""
    assert captured.results["never recorded"] == [0, 0, 0]
    assert entries(captured, "order") == [
        (RECORD, 1, 1, ""),
        (RECORD, 1, 2, ""),
        (WAIT, 2, 2, ""),
        (WORK, 2, 0, "memset bytes=64"),
        (EVENT_SYNC, 0, 2, ""),
        (STREAM_SYNC, 2, 0, ""),
        (DEVICE_SYNC, 0, 0, ""),
    ]


def test_streams_are_logged_with_their_priorities(captured: emulated.Captured) -> None:
    """Priorities out of range are clamped, as in CUDA."""
    assert captured.results["clamped priority"] == -5
    notes = [note for note in captured.log.notes if note.startswith("stream index=1 ")]
    assert notes == ["stream index=1 device=0 priority=-2 nonblocking=1"]


def test_elapsed_time_is_positive_or_an_error(captured: emulated.Captured) -> None:
    """It is an error for unrecorded events and for events without timing."""
    assert captured.results["time"] == [0, True]
    assert (captured.results["unrecorded time"], captured.results["no time"]) == (400, 400)


def test_destroyed_and_foreign_handles_are_refused(captured: emulated.Captured) -> None:
    """The error is cudaErrorInvalidResourceHandle; the memory behind the handle is not read."""
    assert captured.results["destroy"] == [0, 400, 0, 400]
    assert captured.results["destroyed"] == [400] * 5
    assert captured.results["garbage"] == [400, 400]


def test_host_functions_are_called(captured: emulated.Captured) -> None:
    """Outside a graph capture immediately; within one at every replay."""
    assert captured.results["host function"] == [5]
    assert captured.results["not yet called"] == [5]
    assert captured.results["called by replay"] == [6, 6]


def test_a_graph_capture_logs_nothing_and_ends_in_its_origin_stream(captured: emulated.Captured) -> None:
    """The second stream joins the capture by waiting for an event."""
    results = captured.results
    assert entries(captured, "capture") == []
    assert (results["joined"], results["left"], results["captured query"]) == (1, 0, 907)
    assert (results["end elsewhere"], results["end"], results["nodes"]) == (903, 0, 4)


def test_a_replay_logs_its_kernels_with_new_serials(captured: emulated.Captured) -> None:
    """Work of the origin stream runs in the launch's stream (4); the other stream keeps its own."""
    replay = entries(captured, "replay")
    assert len(replay) == 14
    serials = [entry[2] for entry in replay if entry[0] == RECORD]
    assert len(set(serials)) == 4
    assert [(kind, stream, text) for kind, stream, _, text in replay[:7]] == [
        (WORK, 4, "memset bytes=1"),
        (RECORD, 4, ""),
        (WAIT, 2, ""),
        (WORK, 2, "memset bytes=2"),
        (RECORD, 2, ""),
        (WAIT, 4, ""),
        (WORK, 4, "memset bytes=3"),
    ]
    assert [entry[2] for entry in replay if entry[0] == WAIT] == serials


def test_a_replay_has_no_host_time_between_its_records(captured: emulated.Captured) -> None:
    """All records of a launch have the same time, and all but the first, which stands for the launch, the flag."""
    first, end = captured.sections["replay"]
    records = captured.log.records[first:end]
    assert len(set(records["cpu_ns"][:7].tolist())) == 1
    assert records["tag"][:7].tolist() == [0, *[1] * 6]


def test_destroyed_graphs_are_refused(captured: emulated.Captured) -> None:
    """The executable graph outlives the graph it was made from."""
    assert captured.results["destroy graph"] == [0, 400]
    assert captured.results["destroy exec"] == [0, 1]


def test_forbidden_calls_invalidate_a_graph_capture(captured: emulated.Captured) -> None:
    """Synchronizing, allocating (in global mode also in other threads), uncaptured events, unjoined streams."""
    results = captured.results
    assert (results["not capturing"], results["capture of default"]) == (401, 900)
    assert results["wait inside"] == [900, 901]
    assert results["malloc inside"] == [900, 901]
    assert results["malloc elsewhere"] == [900, 901]
    assert results["malloc elsewhere, local"] == [0, 0]
    assert results["malloc relaxed"] == [0, 0]
    assert results["unjoined"] == [0, 904]
    assert results["begin twice"] == [401, 0]
    assert results["outside event"] == [905, 901]
