"""The pool of cached blocks that all replicas share: what it holds, when it can be read, and what its links delay."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.serving.engines.engine import Fleet, Limits, Replica, Tiers, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STEP = 1_000_000
LIMITS = Limits(num_gpu_blocks=41, max_num_seqs=4, max_num_batched_tokens=256, max_model_len=300)
PORT, PCIE, LATENCY = STEP // 5, STEP // 10, STEP // 100  # of a block, of a block, of a request


def replica(host: int = 0, role: Any = "any", **more: Any) -> Replica:
    limits = dataclasses.replace(LIMITS, tiers=Tiers(host, 0, PCIE, 0, LATENCY, PORT), **more)
    return Replica(limits, constant_times(STEP, limits), role)


def prompts(groups: list[int], starts: list[int], tokens: int = 193) -> Workload:
    """Requests whose prompts are equal within a group, in whole blocks of 16; they start in these steps."""
    blocks = tokens // 16
    ids = [group * 100 + block for group in groups for block in range(blocks)]
    return make(
        "groups", np.array(starts) * STEP, np.full(len(groups), tokens), np.full(len(groups), 5),
        segment_first=np.arange(len(groups) + 1) * blocks, segments=np.array(ids), segment_tokens=16,
    )  # fmt: skip


def serve(workload: Workload, *replicas: Replica, compiled: bool = False, **more: Any) -> Served:
    return simulate(workload, Fleet(replicas, **more), compiled=compiled)


def test_a_replica_reads_what_another_one_wrote_in_the_time_of_its_port_and_its_copies() -> None:
    """Round robin: the second request of a prompt is on the other replica, the third on the first."""
    workload = prompts([0, 0, 0], [0, 400, 800])
    served = serve(workload, replica(), replica(), pool_blocks=100)
    assert served.shared_hits.tolist() == [0, 192, 0]
    assert served.hits.tolist() == [0, 0, 192]
    assert served.stored == 12
    assert served.first[1] - served.sent[1] == 12 * (PORT + PCIE) + LATENCY + STEP
    alone = serve(workload, replica(), replica())
    assert (alone.shared_hits.sum(), alone.stored, alone.hits.tolist()) == (0, 0, [0, 0, 192])


def test_the_pools_own_links_delay_readers_at_the_same_time() -> None:
    """Four replicas; three read the first one's blocks together, over links that move a block in a step."""
    workload = prompts([0, 0, 0, 0], [0, 400, 400, 400])
    replicas = [replica() for _ in range(4)]
    free = serve(workload, *replicas, pool_blocks=100)
    shared = serve(workload, *replicas, pool_blocks=100, pool_block_ns=STEP)
    assert free.shared_hits.tolist() == shared.shared_hits.tolist() == [0, 192, 192, 192]
    assert len({*(free.first - free.sent)[1:].tolist()}) == 1
    copies = 12 * PCIE + LATENCY + STEP
    assert sorted((shared.first - shared.sent)[1:].tolist()) == [12 * STEP * number + copies for number in (1, 2, 3)]


def test_a_block_is_read_only_once_it_is_written() -> None:
    """12 blocks take 12 * PORT to be written; two steps after the first request's end none of the last is there."""
    early, late = prompts([0, 0], [0, 2]), prompts([0, 0], [0, 20])
    assert 0 < serve(early, replica(), replica(), pool_blocks=100).shared_hits[1] < 192
    assert serve(late, replica(), replica(), pool_blocks=100).shared_hits[1] == 192


def test_a_full_pool_gives_up_what_was_used_longest_ago() -> None:
    """Room for one prompt of 12 blocks: the third request's prompt was given up for the second's."""
    workload = prompts([0, 1, 2, 0, 0], [0, 400, 800, 1200, 1600])
    small = serve(workload, replica(), replica(), pool_blocks=12)
    large = serve(workload, replica(), replica(), pool_blocks=100)
    assert (small.shared_hits[3], large.shared_hits[3]) == (0, 192)
    assert small.dropped > 0 == large.dropped
    assert small.stored > large.stored == 36


def test_prefill_engines_write_and_read_and_share_their_ports_with_transfers() -> None:
    """Two prefill engines in turn: the second finds the first one's blocks, and sends them on over its port."""
    workload = prompts([0, 0], [0, 400])
    engines = (replica(role="prefill"), replica(role="prefill"), replica(role="decode"))
    served = serve(workload, *engines, pool_blocks=100, kv_token_bytes=1, port_bytes_per_s=1e9)
    assert served.shared_hits.tolist() == [0, 192]
    assert served.finished.all()


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(0, 12), st.sampled_from(["vllm", "sglang"]))
@settings(max_examples=examples(12), deadline=None)
def test_all_tokens_come_out_whatever_the_pool_holds(seed: int, room: int, host: int, scheduler: Any) -> None:
    rng = np.random.default_rng(seed)
    workload = prompts(rng.integers(0, 3, 20).tolist(), np.sort(rng.integers(0, 60, 20)).tolist())
    served = serve(workload, *(replica(host, scheduler=scheduler) for _ in range(2)), pool_blocks=room)
    assert served.finished.all()
    assert served.gaps[:, 1].sum() + len(workload) == workload.output.sum()
    hits = served.hits + served.host_hits + served.disk_hits + served.shared_hits
    assert (hits < workload.prompt).all()


@pytest.mark.parametrize("scheduler", ["vllm", "sglang"])
def test_compiled_and_uncompiled_say_the_same(scheduler: Any) -> None:
    rng = np.random.default_rng(7)
    workload = prompts(rng.integers(0, 5, 40).tolist(), np.sort(rng.integers(0, 200, 40)).tolist())
    replicas = [replica(6, scheduler=scheduler) for _ in range(2)]
    plain, compiled = (
        serve(workload, *replicas, compiled=is_compiled, pool_blocks=30, pool_block_ns=STEP // 3)
        for is_compiled in (False, True)
    )
    for column in ("first", "last", "hits", "host_hits", "shared_hits", "steps", "gaps", "stored"):
        assert np.asarray(getattr(plain, column)).tolist() == np.asarray(getattr(compiled, column)).tolist()
    assert plain.shared_hits.sum() > 0
