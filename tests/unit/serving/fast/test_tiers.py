"""Cached blocks that go to host memory and disk: who holds them, what comes back, and how long it takes."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.serving.engines.engine import Fleet, Limits, Replica, Tiers, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate, start
from presim.serving.fast import serving_state, tiers
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STEP = 1_000_000
LIMITS = Limits(num_gpu_blocks=21, max_num_seqs=4, max_num_batched_tokens=256, max_model_len=300)


def engine(host: int = 0, disk: int = 0, **more: Any) -> Replica:
    which = dataclasses.replace(LIMITS, tiers=Tiers(host, disk, STEP // 10, STEP, STEP // 100), **more)
    return Replica(which, constant_times(STEP, which))


def shared(prompts: list[int], groups: list[int], gap: int = 400) -> Workload:
    """Requests one after the other; those of a group have the same prompt, in whole blocks of 16."""
    sizes = [prompt // 16 for prompt in prompts]
    ids = [group * 100 + place for group, size in zip(groups, sizes) for place in range(size)]
    return make(
        "shared", np.arange(len(prompts)) * gap * STEP, np.array(prompts), np.full(len(prompts), 5),
        segment_first=np.concatenate([[0], np.cumsum(sizes)]), segments=np.array(ids), segment_tokens=16,
    )  # fmt: skip


def serve(workload: Workload, *replicas: Replica, compiled: bool = False, **more: Any) -> Served:
    return simulate(workload, Fleet(replicas, **more), compiled=compiled)


def test_what_the_gpu_gives_up_comes_back_from_host_memory_in_the_time_of_its_copies() -> None:
    """Two prompts of 12 blocks do not fit 20; the first comes again and finds its 12 (less its last token's) there."""
    workload = shared([193, 193, 193], [0, 1, 0])
    lost, kept = serve(workload, engine()), serve(workload, engine(host=100))
    assert lost.hits.tolist() == [0, 0, 0] or lost.hits[2] < 192
    assert kept.hits[2] + kept.host_hits[2] == 192
    blocks = int(kept.host_hits[2]) // 16
    assert blocks > 0
    assert kept.first[2] - kept.sent[2] == STEP + STEP // 100 + blocks * STEP // 10
    assert kept.demoted > 0
    assert kept.dropped == 0


def test_what_host_memory_has_no_room_for_goes_to_disk_and_comes_back_through_it() -> None:
    workload = shared([193] * 4, [0, 1, 2, 0])
    served = serve(workload, engine(host=4, disk=100))
    host, disk = int(served.host_hits[3]) // 16, int(served.disk_hits[3]) // 16
    assert disk > 0
    assert served.hits[3] + served.host_hits[3] + served.disk_hits[3] == 192
    assert served.first[3] - served.sent[3] == STEP + STEP // 100 + (host + disk) * STEP // 10 + disk * STEP
    assert serve(workload, engine(disk=100)).disk_hits[3] > 0
    assert serve(workload, engine(host=4)).dropped > 0


def test_other_requests_go_on_while_blocks_come_back() -> None:
    first = shared([193, 193, 193, 20], [0, 1, 0, 2])
    workload = dataclasses.replace(first, arrival_ns=np.array([0, 400, 800, 800]) * STEP)
    served = serve(workload, engine(host=100))
    assert served.host_hits[2] > 0
    assert served.first[3] < served.first[2]


@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(0, 12), st.booleans())
@settings(max_examples=examples(9), deadline=None)
def test_all_tokens_come_out_whatever_the_tiers_hold(seed: int, host: int, disk: int, asynchronous: bool) -> None:
    rng = np.random.default_rng(seed)
    workload = shared((rng.integers(1, 14, 25) * 16 + 1).tolist(), rng.integers(0, 3, 25).tolist(), gap=2)
    served = serve(workload, engine(host, disk, async_scheduling=asynchronous, scheduler_reserve_full_isl=False))
    assert served.finished.all()
    assert served.gaps[:, 1].sum() + len(workload) == workload.output.sum()
    found = served.hits + served.host_hits + served.disk_hits
    assert (found < workload.prompt).all()
    assert served.steps[:, serving_state.LOG_USED].max() <= 20


@given(st.integers(1, 6), st.lists(st.integers(1, 9), max_size=60))
@settings(max_examples=examples(17), deadline=None)
def test_a_tier_keeps_what_was_used_last(room: int, keys: list[int]) -> None:
    """As an ordered dictionary from which the oldest falls."""
    program, columns = start(make("none", *(np.zeros(0, np.int64),) * 3), Fleet((engine(room),)), record=False)
    p = serving_state.Program(**{name: column.tolist() for name, column in program.items()})
    s = serving_state.ServingState(**{name: column.tolist() for name, column in columns.items()})
    model: OrderedDict[int, None] = OrderedDict()
    for key in keys:
        model[key] = None
        model.move_to_end(key)
        out = model.popitem(last=False)[0] if len(model) > room else 0
        assert tiers.put_block(p, s, 0, key) == out
        assert {one for one in range(1, 10) if tiers.node_of(p, s, 0, one) >= 0} == set(model)


def test_compiled_and_uncompiled_say_the_same() -> None:
    rng = np.random.default_rng(5)
    workload = shared((rng.integers(1, 14, 60) * 16 + 1).tolist(), rng.integers(0, 6, 60).tolist(), gap=3)
    fleet = (engine(20, 20), engine(20, 20))
    plain, compiled = (serve(workload, *fleet, compiled=each, router="prefix") for each in (False, True))
    for column in ("first", "last", "hits", "host_hits", "disk_hits", "steps", "gaps"):
        assert getattr(plain, column).tolist() == getattr(compiled, column).tolist()
    assert plain.host_hits.sum() > 0
    assert plain.disk_hits.sum() > 0


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 3, 10]), st.sampled_from([5, 20, 50]), st.sampled_from([31, 41]))
def test_sglang_keeps_pages_for_what_it_loads(seed: int, gap: int, output: int, blocks: int) -> None:
    """Blocks from host memory take pages, too, so that no more are in use than there are."""
    draw = np.random.default_rng(seed)
    prompts, groups = draw.choice([97, 161, 193], 12).tolist(), draw.integers(0, 4, 12).tolist()
    workload = dataclasses.replace(shared(prompts, groups, gap), output=np.full(12, output))
    served = serve(workload, engine(host=100, scheduler="sglang", num_gpu_blocks=blocks, max_num_seqs=8))
    assert served.finished.all()
    assert served.steps[:, serving_state.LOG_USED].max() < blocks
