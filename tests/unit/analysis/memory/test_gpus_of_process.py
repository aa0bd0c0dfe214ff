"""Memory and work of each GPU of one process."""

from __future__ import annotations

import msgspec
import numpy as np

from presim.analysis.memory.blocks import allocated_bytes, find_blocks, fullest_gpu, peaks_by_gpu, reserved_bytes
from presim.analysis.notes.gpus_of_process import busy_shares, gpus_of_process_note, gpus_used
from presim.analysis.time.steps import Step
from presim.engine.timeline import Timeline
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Trace
from presim.trace.signatures import Copy

TWO = msgspec.structs.replace(default_manifest(), devices=2, stream_devices={1: 1})


def _trace(**changes: object) -> Trace:
    build = TraceBuilder(msgspec.structs.replace(TWO, **changes))
    for gpu, size in enumerate((3, 5)):
        build.segment(100 * gpu, size + 1, gpu=gpu)
        build.alloc(100 * gpu, size, gpu=gpu)
    build.work(Copy(direction="memset", bytes=1))
    build.work(Copy(direction="memset", bytes=1), stream=1)
    return build.trace()


def test_memory_is_that_of_the_fullest_gpu_not_the_sum() -> None:
    trace = _trace()
    assert peaks_by_gpu(trace) == [4, 6]
    assert fullest_gpu(trace) == 1
    assert (allocated_bytes(trace).max(), reserved_bytes(trace).max()) == (5, 6)
    assert find_blocks(trace).bytes.tolist() == [5]


def test_a_gpu_that_was_full_is_the_fullest() -> None:
    trace = _trace(error="CUDA out of memory. GPU 0 has a total capacity of 79.19 GiB")
    assert reserved_bytes(trace).max() == 4


def test_a_rank_s_memory_counts_whole() -> None:
    assert reserved_bytes(_trace(devices=1)).max() == 10


def test_a_note_names_the_busiest_gpu() -> None:
    trace = _trace()
    start, end = np.array([0, 0, 0, 0, 0, 20]), np.array([0, 0, 0, 0, 30, 80])
    timeline = Timeline(start, start, end, np.zeros(6, np.int64), np.zeros(6, np.int64))
    step = Step(slice(0, 6), 0, 100)
    assert busy_shares(trace, timeline, step) == [0.3, 0.6]
    assert gpus_used(trace.manifest) == 2
    assert "GPU 1 limits the step most" in gpus_of_process_note(trace, timeline, step)[0]
