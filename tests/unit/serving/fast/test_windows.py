"""Layers with windows, chunks and states take pages of the pool of blocks, and give them back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.serving.engines.engine import Apart, Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STEP_NS = 1_000_000
SLIDING = Apart("sliding", 2, 16, 32, 7)
STATES = Apart("state", 3, 64, 1, 2)


def limits(*apart: Apart, blocks: int = 400, caching: bool = False) -> Limits:
    return Limits(
        num_gpu_blocks=blocks, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=600,
        enable_prefix_caching=caching, apart=apart, async_scheduling=False,
    )  # fmt: skip


def serve(load: Workload, which: Limits, *, compiled: bool = False) -> Served:
    fleet = Fleet((Replica(which, constant_times(STEP_NS, which)),))
    return simulate(load, fleet, record=True, compiled=compiled)


def lone(prompt: int, output: int) -> Workload:
    return make("one", np.zeros(1, np.int64), np.array([prompt]), np.array([output]))


@pytest.mark.parametrize(
    ("groups", "pages"),
    [
        ((), 32),  # 505 tokens in blocks of 16
        ((SLIDING,), 32 + 2 * 3),  # a window of 32 tokens lies in up to three blocks
        ((Apart("chunked", 1, 16, 128),), 32 + 8),
        ((STATES,), 32 + 3),
        ((Apart("full", 1, 32),), 32 + 16),
        ((SLIDING, STATES), 32 + 6 + 3),
    ],
)
def test_a_decode_has_the_pages_that_its_layers_look_back_on(groups: tuple[Apart, ...], pages: int) -> None:
    used = serve(lone(480, 40), limits(*groups)).steps[:, serving_state.LOG_USED]
    prompt_steps, decode_steps = -(-480 // 64), 505 - 480
    assert used[prompt_steps + decode_steps - 1] == pages  # the step that computes token 505


def test_more_requests_run_where_layers_have_windows() -> None:
    """Twelve groups that keep all tokens hold one request of 512; with eleven windows four run at a time."""
    load = make("four", np.zeros(4, np.int64), np.full(4, 480), np.full(4, 40))
    everything, windows = (Apart(kind, 11, 16, 32, cap) for kind, cap in (("full", 1 << 40), ("sliding", 7)))
    together = [
        serve(load, limits(group, blocks=450)).steps[:, serving_state.LOG_RUNNING].max()
        for group in (everything, windows)
    ]
    assert together == [1, 4]


@settings(max_examples=examples(10))
@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 90)), min_size=1, max_size=12),
    st.lists(
        st.sampled_from([SLIDING, STATES, Apart("chunked", 1, 32, 64, 4), Apart("full", 2, 32)]),
        max_size=3,
        unique=True,
    ),
    st.integers(0, 200),
    st.booleans(),
)
def test_every_page_is_free_in_the_end(
    lengths: list[tuple[int, int]], groups: list[Apart], more: int, caching: bool
) -> None:
    which = limits(*groups, caching=caching)
    which = dataclasses.replace(which, num_gpu_blocks=which.pages(590) + 1 + more)
    load = make("some", np.zeros(len(lengths), np.int64), *(np.array(column) for column in zip(*lengths)))
    served = serve(load, which)
    assert served.finished.all()
    assert (served.steps[:, serving_state.LOG_USED] < which.num_gpu_blocks).all()
    after = serve(make("again", *(np.concatenate([column, column[-1:]]) for column in
                                  (load.arrival_ns, load.prompt, load.output))), which)  # fmt: skip
    assert after.finished.all()


def test_compiled_and_uncompiled_agree() -> None:
    rng = np.random.default_rng(3)
    load = make("random", np.sort(rng.integers(0, 40 * STEP_NS, 30)), rng.integers(1, 400, 30), rng.integers(1, 80, 30))
    which = limits(SLIDING, STATES, blocks=90, caching=True)
    plain, compiled = (serve(load, which, compiled=compiled) for compiled in (False, True))
    assert plain.preemptions.any()
    assert (plain.steps == compiled.steps).all()
    assert (plain.last == compiled.last).all()
