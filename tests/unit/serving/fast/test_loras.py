"""LoRA adapters limit who runs together, take time and memory, and do not share cached blocks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from presim.errors import InputError
from presim.hardware import catalogue
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps import lora
from presim.serving.steps.engine_weights import weight_bytes
from presim.serving.steps.times import build
from presim.serving.workloads.workload import make

STEP = 1_000_000


def serve(adapters: list[int], max_loras: int, lora_ns: float = 0.0, **more: Any) -> Served:
    limits = Limits(200, max_num_seqs=8, max_num_batched_tokens=256, max_model_len=400, max_loras=max_loras)
    times = constant_times(STEP, limits)
    times = dataclasses.replace(times, lora_ns=np.minimum(np.arange(len(times.token_ns)), 1) * lora_ns)
    count = len(adapters)
    load = make(
        "some", np.zeros(count, np.int64), np.full(count, 20), np.full(count, 5), adapter=np.array(adapters), **more
    )
    return simulate(load, Fleet((Replica(limits, times),)), record=True, compiled=False)


def test_a_batch_holds_at_most_so_many_adapters() -> None:
    """Requests of a third adapter wait; one behind them whose adapter is there overtakes them."""
    served = serve([1, 2, 3, 1, 0], 2)
    first = served.schedule[served.schedule[:, 0] == 0, 1]
    assert first.tolist() == [0, 1, 3, 4]
    assert served.scheduled[2] >= served.last[0]
    assert served.finished.all()


def test_a_waiting_adapter_joins_when_another_has_no_request_left() -> None:
    served = serve([1, 2], 1)
    assert served.scheduled[1] > served.scheduled[0]
    assert served.scheduled[1] <= served.last[0] + STEP


def test_adapters_take_time_where_a_batch_has_one() -> None:
    plain, adapted = serve([0], 1, 500.0), serve([1], 1, 500.0)
    took = [served.steps[:, 3] - served.steps[:, 2] for served in (plain, adapted)]
    assert set(took[0].tolist()) == {STEP}
    assert set(took[1].tolist()) == {STEP + 500}


def test_cached_blocks_are_of_one_adapter() -> None:
    """The same tokens under another adapter have other keys and values."""
    shared = {"segment_first": np.arange(4), "segments": np.zeros(3, np.int64), "segment_tokens": 16}
    limits = Limits(200, max_num_seqs=1, max_num_batched_tokens=256, max_model_len=400, max_loras=2)
    load = make("some", np.zeros(3), np.full(3, 20), np.full(3, 2), adapter=np.array([1, 1, 2]), **shared)
    served = simulate(load, Fleet((Replica(limits, constant_times(STEP, limits)),)), compiled=False)
    assert served.hits.tolist() == [0, 16, 0]


def test_a_workload_with_adapters_needs_an_engine_that_takes_them() -> None:
    with pytest.raises(InputError, match="give --max-loras"):
        serve([1], 0)


def test_the_slots_of_adapters_are_counted_as_memory() -> None:
    """Llama-3-8B, rank 16: 41.9 M parameters of an adapter over all linear layers, as PEFT counts them."""
    model, plan = find("llama3-8b"), ServingPlan(max_loras=1, lora_rank=16)
    parameters = 32 * 16 * ((4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096) + 2 * (4096 + 14336) + (14336 + 4096))
    assert lora.adapter_bytes(model.counts(), model.hidden, plan) == 2 * parameters
    gpu = catalogue.gpu("h100-sxm")
    more = weight_bytes(model, dataclasses.replace(plan, max_loras=4), gpu) - weight_bytes(model, ServingPlan(), gpu)
    assert more == 4 * 2 * parameters


def test_adapters_slow_steps_down_and_more_of_them_more() -> None:
    model, cluster = find("llama3-8b"), choose_cluster(gpu="h100-sxm", world_size=1)
    one, eight = (build(model, ServingPlan(max_loras=most), cluster).times.lora_ns for most in (1, 8))
    assert one is not None
    assert eight is not None
    assert one[0] == 0
    assert 0 < one[64] < eight[64]
    step = build(model, ServingPlan(), cluster).times.step_ns([], [1000] * 64)
    assert one[64] < 0.5 * step


def test_latent_attention_takes_no_adapters() -> None:
    with pytest.raises(InputError, match="LoRA over the latent attention of deepseek-v3 is not modelled"):
        ServingPlan(tp=8, max_loras=1).check(find("deepseek-v3"))
