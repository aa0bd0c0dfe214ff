"""A run that serves nobody says so, with the reason and the option that admits the requests."""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.serving.answer import metrics, refused
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.workloads.workload import make

LIMITS = Limits(num_gpu_blocks=11, block_size=16, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=200)


def served(*prompts: int, limits: Limits = LIMITS) -> Served:
    count = len(prompts)
    load = make("prompts", np.zeros(count, np.int64), np.array(prompts), np.full(count, 2))
    return simulate(load, Fleet((Replica(limits, constant_times(1e6, limits)),)), compiled=False)


def test_prompts_beyond_the_model_s_length_are_counted_with_both_numbers() -> None:
    assert refused.sentences(served(200, 450), LIMITS) == [
        "All 2 requests were refused: a prompt may have 199 tokens, one less than max_model_len, and the longest has "
        "450. Raise --max-model-len or shorten the prompts."
    ]


def test_requests_beyond_the_cache_are_told_from_those_beyond_the_length() -> None:
    assert refused.sentences(served(40, 170, 300), LIMITS) == [
        "1 of 3 requests was refused: a prompt may have 199 tokens, one less than max_model_len, and the longest has "
        "300. Raise --max-model-len or shorten the prompts.",
        "1 of 3 requests was refused: the KV cache holds 160 tokens, and the longest request needs 172. Give the "
        "engine more memory for its cache.",
    ]


def test_nothing_is_said_when_all_are_served() -> None:
    assert refused.sentences(served(40), dataclasses.replace(LIMITS)) == []


def test_a_run_that_serves_nobody_has_no_latencies() -> None:
    figures = metrics.bench(served(200, 450))
    assert figures["completed"] == 0
    assert {figures[key] for key in figures if "_ttft_" in key or "_e2el_" in key or "_tpot_" in key} == {None}
