"""Offloading: what is copied, what memory it saves, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim import hardware
from presim.composition.compose import Composed, compose
from presim.composition.entry_templates import FROM_HOST, TO_HOST
from presim.composition.plan import Plan
from presim.composition.plan_check import check
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.trace.schema import Category, Kind, Trace
from presim.trace.signatures import Copy
from presim.trace.trace_invariants import check as check_trace
from support.long_cases import examples
from support.models import llama

pytestmark = pytest.mark.torch_cuda
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": "full"},
    {"data_style": "zero1", "global_batch": 16},
    {"data_style": "ddp"},
    {"pipeline": 2, "global_batch": 16},
    {"pipeline": 2, "virtual": 2, "global_batch": 16},
    {"tensor": 2, "sequence_parallel": True},
)


def made(**fields: Any) -> Composed:
    return compose(llama(), Plan(sequence=512, **fields), CLUSTER)


def seconds(job: Composed) -> float:
    return evaluate(job, CLUSTER).result.step_time_s or 0.0


def copied(trace: Trace, stream: int) -> int:
    """Bytes of the last step's copies on a stream."""
    rows = trace.steps()[-1]
    chosen = trace.columns["signature"][rows][trace.columns["stream"][rows] == stream]
    found = [trace.signatures[index] for index in chosen[chosen >= 0].tolist()]
    return sum(one.bytes for one in found if isinstance(one, Copy))


def peak(trace: Trace) -> int:
    kind, value = trace.columns["kind"], trace.columns["value"]
    change = np.where(kind == Kind.ALLOC, value, 0) - np.where(kind == Kind.FREE, value, 0)
    return int(np.cumsum(change).max())


@settings(max_examples=examples(5))
@given(st.sampled_from(KINDS), st.integers(1, 4))
def test_activations_go_down_and_come_back_and_save_at_most_what_was_copied(kind: dict[str, Any], blocks: int) -> None:
    """Each byte is copied twice; the step is never shorter, and its peak never larger."""
    plain, offloaded = made(**kind), made(**kind, offload_activations=blocks)
    assert seconds(offloaded) >= seconds(plain)
    for one, other in zip(plain.traces, offloaded.traces, strict=True):
        check_trace(other)
        down = copied(other, TO_HOST)
        assert down == copied(other, FROM_HOST)
        assert 0 <= peak(one) - peak(other) <= down


def test_more_blocks_leave_less() -> None:
    peaks = [peak(made(offload_activations=blocks).traces[0]) for blocks in range(5)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]


@pytest.mark.parametrize("style", ["fsdp2", "zero1", "ddp"])
def test_streamed_states_are_copied_twice_and_only_parts_are_on_the_gpu(style: str) -> None:
    plain, streamed = (made(data_style=style, offload_optimizer=how) for how in ("none", "states"))
    (trace,), (before,) = streamed.traces, plain.traces
    states = states_of(before) - states_of(trace)
    assert copied(trace, TO_HOST) == copied(trace, FROM_HOST)
    assert 0 < states <= copied(trace, TO_HOST) + 512 * 2 * 100  # blocks of memory are rounded up
    assert peak(trace) < peak(before)
    assert seconds(streamed) >= seconds(plain)


def states_of(trace: Trace) -> int:
    """Bytes of optimizer states that stay to the end."""
    kind, objects, value = (trace.columns[name] for name in ("kind", "object", "value"))
    live: dict[int, int] = {}
    tagged: set[int] = set()
    for what, address, size in zip(kind.tolist(), objects.tolist(), value.tolist()):
        if what == Kind.ALLOC:
            live[address] = size
            tagged.discard(address)
        elif what == Kind.FREE:
            live.pop(address, None)
        elif what == Kind.RETAG and size == Category.OPTIMIZER_STATE:
            tagged.add(address)
    return sum(size for address, size in live.items() if address in tagged)


@pytest.mark.parametrize(("style", "each"), [("fsdp2", (4, 4)), ("zero1", (4, 2)), ("ddp", (2, 2))])
def test_gradients_go_to_the_cpu_and_parameters_come_back(style: str, each: tuple[int, int]) -> None:
    plain, offloaded = (made(data_style=style, offload_optimizer=how) for how in ("none", "cpu"))
    (trace,) = offloaded.traces
    numbers = copied(trace, TO_HOST) // each[0]
    assert copied(trace, FROM_HOST) == numbers * each[1]
    assert numbers >= llama().parameter_count() // (1 if style == "ddp" else 8)
    assert states_of(trace) == 0
    assert peak(trace) < peak(plain.traces[0])
    assert seconds(offloaded) >= seconds(plain)


def test_host_memory_is_said_and_a_host_without_it_is_refused() -> None:
    job = made(offload_activations=4, offload_optimizer="cpu")
    assert any(re.match(r"Offloading keeps up to .* of 2,048 GiB of a host\.", note) for note in job.notes)
    with pytest.raises(InputError, match=r"^offloading takes [\d.,]+ GiB of host memory for the 8 GPUs of a host, and"):
        compose(llama(), Plan(sequence=1 << 21, micro_batch=64, offload_activations=4), CLUSTER)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"offload_activations": 5}, "offload_activations = 5 blocks, but the model has 4 blocks; use 0 to 4"),
        ({"offload_optimizer": "cpu", "optimizer": "sgd"}, "offload_optimizer = cpu updates by AdamW in fp32, not by"),
        ({"offload_optimizer": "states", "optimizer": "sgd"}, "optimizer = sgd has no states to offload"),
    ],
)
def test_what_cannot_be_offloaded_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        check(Plan(sequence=512, **fields), 8, 4)
