"""Hold the fast simulator against SGLang's own scheduler on random workloads; run by test_sglang_scheduler.py."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from presim.serving.engines.engine import Fleet, Limits, Replica, StepTimes, constant_times
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.fast import serving_state, sglang_prompts
from presim.serving.workloads.workload import Workload, make

CLIP = 6  # output tokens that are reserved at most: the fewer, the more requests are retracted
os.environ["SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"] = str(CLIP)
sglang_prompts.CLIP = CLIP
STEP = 1000


@st.composite
def cases(draw: st.DrawFn) -> tuple[Limits, Workload]:
    """Engines that are short of pages, or that find prefixes and have enough of them that none is evicted.

    SGLang evicts whole nodes of its radix tree, where the fast simulator evicts pages. Both are alike if no evicted
    page is looked for: of the engines short of pages, those with a cache have pages longer than prompts.
    """
    caching, sharing = draw(st.sampled_from([(False, False), (True, False), (True, True)]))
    size = draw(st.sampled_from([8] if caching and not sharing else [1, 2, 4]))
    longest, written = draw(st.integers(4, 7) if size == 8 else st.integers(8, 40)), 40
    count = draw(st.integers(1, 25))
    each = -(-(longest + written) // size) + 2
    limits = Limits(
        num_gpu_blocks=1 + (count * each if sharing else each + draw(st.integers(0, 8 if size == 8 else 60))),
        block_size=size,
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.integers(max(8, size), 64)) // size * size,
        max_prefill_tokens=draw(st.sampled_from([16384, 16384, 24])),
        max_model_len=longest + written + 1,
        async_scheduling=draw(st.booleans()),
        enable_prefix_caching=caching,
        scheduler="sglang",
    )
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    prompt = rng.integers(1, longest + 1, count)
    segments = [
        [int(rng.integers(0, 3))] + [int(rng.integers(3, 6)) for _ in range(int(rng.integers(0, 3)))]
        if sharing and rng.random() < 0.6
        else []
        for _ in range(count)
    ]
    segments = [ids[: int(length) // (2 * size)] for ids, length in zip(segments, prompt)]
    # A segment stands for all before it, too: its id says which those were.
    chained = [[hash(tuple(ids[: at + 1])) % 10_000 for at in range(len(ids))] for ids in segments]
    workload = make(
        "random",
        np.sort(rng.integers(0, draw(st.sampled_from([1, 20, 60])) * STEP, count)),
        prompt,
        rng.integers(1, written + 1, count),
        stream=np.arange(count),
        segment_first=np.concatenate([[0], np.cumsum([len(ids) for ids in chained])]).astype(np.int64),
        segments=np.array([one for ids in chained for one in ids], np.int64),
        segment_tokens=2 * size,
    )
    return limits, workload


def step_times(limits: Limits) -> StepTimes:
    """Steps that all take the same, with sampling, launches and the host in it."""
    times = constant_times(STEP, limits)
    return dataclasses.replace(
        times,
        head_ns=times.head_ns + STEP // 4,
        prompt_launch_ns=np.full(len(times.token_ns), 1.5 * STEP),
        decode_launch_ns=np.full(len(times.token_ns), 0.5 * STEP),
        host_ns=150.0,
        back_ns=50.0,
    )


def scheduled(
    limits: Limits, workload: Workload
) -> tuple[list[dict[int, int]], list[int], tuple[list[int], list[int]]]:
    """What the fast simulator does: requests and tokens of each step, and free pages behind it."""
    fleet = Fleet((Replica(limits, step_times(limits)),))
    served = simulate(workload, fleet, record=True, compiled=False)
    assume(served.preemptions.max() < 2)  # such a request looks for what was evicted in between
    SEEN["retracted"] += int(served.preemptions.sum())
    SEEN["found"] += int(served.hits.sum())
    SEEN["chunks"] += int((served.steps[:, serving_state.LOG_PREFILL] == limits.max_num_batched_tokens).sum())
    steps: list[dict[int, int]] = [{} for _ in served.steps]
    for step, item, tokens in served.schedule.tolist():
        steps[step][item] = tokens
    free = (limits.num_gpu_blocks - 1 - served.steps[:, serving_state.LOG_USED]).tolist()
    return steps, free, (served.first.tolist(), served.last.tolist())


SEEN = {"retracted": 0, "found": 0, "chunks": 0}


@given(cases())
@settings(max_examples=int(sys.argv[1]), deadline=None, suppress_health_check=list(HealthCheck))
def every_step_is_the_same(case: tuple[Limits, Workload]) -> None:
    from presim.serving.engines.sglang_engine import SGLangEngine

    limits, workload = case
    steps, free, (begun, ended) = scheduled(limits, workload)
    with tempfile.TemporaryDirectory() as folder:
        engine = SGLangEngine(limits, step_times(limits), Path(folder))
        first, last = engine.serve(workload)
    assert [list(step.items()) for step in steps] == [list(step.items()) for step in engine.steps]
    assert first.tolist() == begun
    assert last.tolist() == ended
    assert free == engine.free_pages


if __name__ == "__main__":
    every_step_is_the_same()
    assert all(SEEN.values()), SEEN
    print(SEEN)
