"""Hold the fast simulator against vLLM's own scheduler on random workloads; run by test_vllm_scheduler.py."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from presim.serving.engines.engine import Apart, Fleet, Limits, Replica, StepTimes, constant_times
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.engines.vllm_engine import VllmEngine
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload, make

STEPS_NS = (1000, 700_000, 3_000_000)  # shorter and longer than an engine's sleep without a batch


@st.composite
def cases(draw: st.DrawFn) -> tuple[Limits, Workload, int]:
    """Engines that are short of blocks, and requests that share prefixes and conversations."""
    size = draw(st.sampled_from([2, 4]))
    longest = draw(st.integers(8, 40))
    step_ns = draw(st.sampled_from(STEPS_NS))
    is_asynchronous = draw(st.booleans())
    stages = draw(st.sampled_from([1, 1, *range(2, 9)]))
    blocks = -(-(2 * longest + 2) // size) + 1 + draw(st.integers(0, 40))
    limits = Limits(
        num_gpu_blocks=blocks,
        block_size=size,
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.integers(8, 64)),
        max_model_len=2 * longest + 2,
        async_scheduling=is_asynchronous,
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        enable_prefix_caching=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 5])),
        prefill_schedule_interval=draw(st.sampled_from([1, 1, 2, 4])),
        pipeline_parallel_size=stages,
        draft_tokens=draw(st.sampled_from([0, 0, 1, 3] if is_asynchronous or stages == 1 else [0])),
        draft_method=draw(st.sampled_from(["eagle", "mtp", "draft", "ngram"])),
        acceptance=draw(st.sampled_from([0.0, 0.6, 1.0])),
        max_loras=draw(st.sampled_from([0, 1, 2])),
    )
    if draw(st.booleans()):
        limits = with_windows(draw, limits)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    count = draw(st.integers(1, 25))
    prompt = rng.integers(1, longest + 1, count)
    segments = [
        [int(rng.integers(0, 3))] + [int(rng.integers(3, 6)) for _ in range(int(rng.integers(0, 3)))]
        if rng.random() < 0.6
        else []
        for _ in range(count)
    ]
    segments = [ids[: int(length) // (2 * size)] for ids, length in zip(segments, prompt)]
    adapters = rng.integers(0, 4, count) if limits.max_loras else np.zeros(count, np.int64)
    structured = rng.random(count) < draw(st.sampled_from([0.0, 0.5] if stages == 1 else [0.0]))
    # A segment stands for all before it, too: its id says which those were.
    chained = [[hash(tuple(ids[: at + 1])) % 10_000 for at in range(len(ids))] for ids in segments]
    workload = make(
        "random",
        np.sort(rng.integers(0, 20 * step_ns, count)),
        prompt,
        rng.integers(1, longest + 1, count),
        priority=rng.integers(0, 3, count),
        stream=np.arange(count),
        adapter=adapters,
        grammar_ns=np.where(structured, rng.integers(0, 3 * step_ns, count), -1),
        segment_first=np.concatenate([[0], np.cumsum([len(ids) for ids in chained])]).astype(np.int64),
        segments=np.array([one for ids in chained for one in ids], np.int64),
        segment_tokens=2 * size,
    )
    return limits, workload, step_ns


def with_windows(draw: st.DrawFn, limits: Limits) -> Limits:
    """With layers that keep windows or states beside; prefixes are not looked for, as each group has its own then."""
    size, in_flight = limits.block_size, limits.depth * limits.max_num_batched_tokens
    kinds = draw(
        st.lists(st.sampled_from(["sliding", "chunked", "full", "state"]), min_size=1, max_size=3, unique=True)
    )
    apart = []
    for kind in kinds:
        window = draw(st.integers(2, 3 * size)) if kind in ("sliding", "chunked") else 0
        cap = {"sliding": -(-(window - 1 + in_flight) // size) + 1, "chunked": -(-(window + in_flight) // size)}
        if kind == "state":
            window = 1
            cap["state"] = 1
        apart.append(Apart(kind, draw(st.integers(1, 3)), size, window, cap.get(kind, 1 << 40)))
    more = sum(group.pages(limits.max_model_len) for group in apart)
    return dataclasses.replace(
        limits,
        apart=tuple(apart),
        num_gpu_blocks=limits.num_gpu_blocks + more,
        enable_prefix_caching=False,
        draft_tokens=0 if "state" in kinds else limits.draft_tokens,
    )


def step_times(limits: Limits, step_ns: int) -> StepTimes:
    """Steps that all take the same, with sampling, adapters, launches and the host in it."""
    times = constant_times(step_ns, limits)
    return dataclasses.replace(
        times,
        head_ns=times.head_ns + step_ns // 4,
        lora_ns=np.arange(len(times.token_ns)) * 10.0,
        prompt_launch_ns=np.full(len(times.token_ns), 1.5 * step_ns),
        decode_launch_ns=np.full(len(times.token_ns), 0.5 * step_ns),
        mask_ns=100.0,
        host_ns=150.0,
        back_ns=50.0,
    )


def scheduled(
    limits: Limits, workload: Workload, step_ns: int
) -> tuple[list[dict[int, int]], list[int], tuple[list[int], list[int]]]:
    """What the fast simulator does: requests and tokens of each step, and free blocks behind it."""
    fleet = Fleet((Replica(limits, step_times(limits, step_ns)),))
    served = simulate(workload, fleet, record=True, compiled=False)
    steps: list[dict[int, int]] = [{} for _ in served.steps]
    for step, item, tokens in served.schedule.tolist():
        steps[step][item] = tokens
    free = (limits.num_gpu_blocks - 1 - served.steps[:, serving_state.LOG_USED]).tolist()
    return steps, free, (served.first.tolist(), served.last.tolist())


@given(cases())
@settings(max_examples=int(sys.argv[1]), deadline=None, suppress_health_check=list(HealthCheck))
def every_step_is_the_same(case: tuple[Limits, Workload, int]) -> None:
    limits, workload, step_ns = case
    with tempfile.TemporaryDirectory() as folder:
        engine = VllmEngine(limits, step_times(limits, step_ns), Path(folder))
        first, last = engine.serve(workload)
    steps, free, (begun, ended) = scheduled(limits, workload, step_ns)
    assert first.tolist() == begun
    assert last.tolist() == ended
    assert [list(step.items()) for step in steps] == [list(step.items()) for step in engine.steps]
    assert free == engine.free_blocks


if __name__ == "__main__":
    every_step_is_the_same()
