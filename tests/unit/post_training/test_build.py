"""Bad input of `presim rl`: one sentence with the numbers and what to do next, before anything is composed."""

from __future__ import annotations

from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.build import build_job
from presim.post_training.rl_job import pool_of
from presim.post_training.rl_request import RlRequest, request_of

BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"prompts": 100, "mini_batch": 33},
        "100 prompts do not divide into mini-batches of 33 (100 % 33 = 1); use a --mini-batch that divides them",
    ),
    (
        {"prompts": 9, "samples": 1},
        "a mini-batch of 9 responses does not divide over 8 data-parallel ranks (9 % 8 = 1); change --prompts, "
        "--samples, --mini-batch or a degree",
    ),
    (
        {"response": "lognormal:mean=9000,p99=60000"},
        "a prompt with its response has up to 1,007,094 tokens, and qwen3-0.6b takes 40,960; shorten --response with "
        "max=39936",
    ),
    (
        {"micro_tokens": 2048, "cp": 1},
        "a prompt with its response has up to 3,072 tokens, more than the 2,048 of a micro-batch; use --micro-tokens "
        "3072 or more for each of 1 context-parallel ranks",
    ),
    (
        {"staleness": 1.0},
        "--rollout-gpus, --staleness and --partial are of separate pools; add --placement separate, or leave them out",
    ),
    (
        {"placement": "separate", "rollout_gpus": 8},
        "8 of 8 GPUs cannot generate while others train; use --rollout-gpus of 1 to 7",
    ),
    ({"cut_tail": 1.0}, "--cut-tail 1 aborts all responses; use a share below 1"),
    (
        {"cut_tail": 0.1, "turns": 2},
        "responses are aborted (--spare-prompts, --cut-tail) on-policy alone, without --keep and --turns; leave out "
        "one of both",
    ),
    (
        {"placement": "separate", "partial": True},
        "--partial interrupts responses that go on with newer weights; add --staleness 1 or more",
    ),
    (
        {"engine": {"tp": 4, "max_num_seqs": 8}, "placement": "separate", "rollout_gpus": 2, "samples": 12},
        "engines of 4 GPUs do not fill the rollout pool of 2 GPUs; use a --rollout-tp that divides 2",
    ),
]


@pytest.mark.parametrize(("fields", "sentence"), BAD)
def test_a_request_that_cannot_be_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        _build(fields)
    assert str(error.value) == sentence


def _build(fields: dict[str, Any]) -> None:
    request = RlRequest(model="qwen3-0.6b", **{"response": "2048", **fields})
    build_job(request, choose_cluster(gpu="h100-sxm", world_size=8))


def test_an_unknown_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as error:
        request_of("qwen3-8b", {"stalness": 1})
    assert str(error.value) == "a post-training job has no 'stalness'; use staleness"


def test_more_responses_than_can_be_simulated_are_refused() -> None:
    with pytest.raises(InputError) as error:
        RlRequest(model="qwen3-8b", prompts=1 << 20, samples=16, response="10")
    assert str(error.value) == (
        "16,777,216 responses at once are more than the 1,000,000 that are simulated; use fewer --prompts or --samples"
    )


@pytest.mark.parametrize(("gpus", "shape"), [(12, (2, 6)), (4, (1, 4)), (16, (2, 8)), (20, (4, 5)), (24, (3, 8))])
def test_pools_have_equal_parts_of_nodes(gpus: int, shape: tuple[int, int]) -> None:
    """As where each node has trainers and engines."""
    pool = pool_of(choose_cluster(gpu="h100-sxm", nodes=4), gpus, "training")
    assert (pool.nodes, pool.gpus_per_node) == shape


def test_a_pool_that_no_nodes_share_is_refused() -> None:
    with pytest.raises(InputError, match="the training pool of 11 GPUs fills no whole nodes of 8; use 8 or 16"):
        pool_of(choose_cluster(gpu="h100-sxm", nodes=4), 11, "training")
