"""What frameworks do to logits takes time in proportion to the bytes that their code moves."""

from __future__ import annotations

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.logits import TRAFFIC, head_seconds, logits_seconds

CLUSTER = choose_cluster(gpu="h100-sxm", world_size=1)


def test_a_composed_step_has_no_more() -> None:
    seconds = logits_seconds("composed", CLUSTER)
    assert (seconds.old, seconds.reference, seconds.update) == (0, 0, 0)


@pytest.mark.parametrize("code", ["verl-megatron", "nemo-rl-megatron"])
def test_passes_run_at_the_rate_of_memory(code: str) -> None:
    traffic, seconds = TRAFFIC[code], logits_seconds(code, CLUSTER)  # type: ignore[index, arg-type]
    rate = (traffic.old - TRAFFIC["composed"].old) / seconds.old
    assert 0.6 < rate / CLUSTER.gpu.memory_bytes_per_s < 1
    assert seconds.update >= seconds.reference >= 0


def test_an_update_has_three_products_with_the_vocabulary() -> None:
    head = head_seconds(4096, 150_000, CLUSTER)
    assert 1e-6 < head.forward_s < head.update_s < 4 * head.forward_s
    assert head.scaled(0.5).update_s == pytest.approx(head.update_s / 2)
