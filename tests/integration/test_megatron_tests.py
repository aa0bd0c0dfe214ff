"""The recipe of Megatron-LM's own tests: in each step the host waits for every checked or logged value."""

from __future__ import annotations

from collections import Counter

import pytest

from presim.trace.schema import Kind
from support.captured import ROOT, run

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("megatron.core")]

RECIPE = ROOT / "validation" / "recipes" / "megatron_tests.py"
MICRO_BATCHES, STEPS = 3, 2


SMALL = (
    *("--engine", "local", "--style", "gpt", "--tied", "--positions", "learned", "--layers", "2"),
    *("--hidden", "64", "--ffn", "256", "--heads", "4", "--kv-heads", "4", "--vocab", "512", "--sequence", "64"),
    *("--batch", "1", "--accumulate", str(MICRO_BATCHES), "--distributed-optimizer"),
)


def reads(*own: str) -> int:
    """Number of reads from the device in the second step."""
    job = run(str(RECIPE), *own, *SMALL, world_size=2, steps=STEPS)
    return int((job.trace.columns["kind"][job.trace.steps()[1]] == Kind.STREAM_SYNC).sum())


@pytest.mark.long
def test_hosts_fetch_each_parameter_that_they_hash() -> None:
    assert reads("--hash-weights") - reads() >= 2 * 12  # each layer's


@pytest.mark.long
def test_the_host_waits_for_every_loss_and_logged_value() -> None:
    job = run(str(RECIPE), *SMALL, world_size=2, steps=STEPS)
    read = Counter[str]()
    for each in job.trace.manifest.read_backs:
        if "megatron_tests.py" in each.line:
            read[each.line] += each.times
    checks = 2 * MICRO_BATCHES * STEPS  # a number, and finite
    assert checks in read.values()
    assert read.total() - checks >= 5 * (STEPS - 1)  # without Transformer Engine and Apex norms are read one by one
    second = job.trace.columns["kind"][job.trace.steps()[1]]
    assert (second == Kind.STREAM_SYNC).sum() >= 2 * MICRO_BATCHES + 5
    assert (second == Kind.DEVICE_SYNC).sum() == 1  # the timer's
