"""Prefill and decode apart, on GPUs of one kind or of two."""

from __future__ import annotations

import dataclasses

import pytest

from presim.cli import main
from presim.hardware import catalogue
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.deployment_search import Space, search
from presim.serving.deployments.disaggregation import exchange
from presim.serving.deployments.estimate import transfer_ns
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from support.deployments import engine_of

SPACE = Space(
    ("h100-sxm", "l40s"), tps=(1, 2), pps=(1,), weights=("bf16",), budgets=(8192,), most_gpus=4, caches=("bf16",)
)


def mixed(points: tuple[DeploymentPoint, ...]) -> list[DeploymentPoint]:
    return [point for point in points if len(point.gpus_by_id) == 2]


def test_prefill_and_decode_may_have_gpus_of_their_own() -> None:
    """Both ways, with the GPUs of each kind counted, and the name of each role's GPU."""
    points = mixed(search(find("llama3-8b"), SPACE, 512, 128, Slo()).points)
    pairs = {(point.prefill.cluster.gpu.id, point.engine.cluster.gpu.id) for point in points if point.prefill}
    assert pairs == {("h100-sxm", "l40s"), ("l40s", "h100-sxm")}
    for point in points:
        assert sum(point.gpus_by_id.values()) == point.gpus <= 4
    names = {point.name for point in points}
    assert "2P1D x prefill l40s TP1, decode h100-sxm TP2 bf16, 8192 tokens a step" in names


def test_one_kind_of_gpu_has_no_mixed_deployments() -> None:
    points = search(find("llama3-8b"), dataclasses.replace(SPACE, gpus=("h100-sxm",)), 512, 128, Slo()).points
    assert not mixed(points)


@pytest.mark.parametrize(
    ("gpus", "word", "plan", "can_exchange"),
    [
        (("h100-sxm", "h200"), "llama3-8b", ServingPlan(cache="fp8"), True),
        (("l40s", "h100-sxm"), "llama3-8b", ServingPlan(), True),
        (("l40s", "h100-sxm"), "llama3-8b", ServingPlan(cache="fp8"), False),
        (("l40s", "h100-sxm"), "llama3-8b", ServingPlan(kernels="sglang"), False),
        (("h100-sxm", "h100-sxm"), "llama3-8b", ServingPlan(tp=2), True),
        (("h100-sxm", "h100-sxm"), "llama3-8b", ServingPlan(pp=2), False),
        (("a100-80gb-sxm", "h100-sxm"), "deepseek-v2-lite", ServingPlan(), False),
        (("h100-sxm", "b200"), "llama3-8b", ServingPlan(), False),
        (("h100-sxm", "mi300x"), "llama3-8b", ServingPlan(), False),
    ],
)
def test_a_cache_goes_only_where_the_attention_backend_is_the_same(
    gpus: tuple[str, str], word: str, plan: ServingPlan, can_exchange: bool
) -> None:
    first, then = (engine_of(word, gpu, plan) for gpu in gpus)
    assert exchange(first, then) is can_exchange
    assert exchange(then, first) is can_exchange


def test_recurrent_states_go_only_between_equal_ranks() -> None:
    single, double = (engine_of("qwen3-next-80b-a3b", "h200", ServingPlan(tp=tp), "fp8") for tp in (1, 2))
    assert exchange(single, single)
    assert not exchange(single, double)


def test_the_slower_ports_limit_the_transfer() -> None:
    fast, slow = (engine_of("llama3-8b", gpu, ServingPlan()) for gpu in ("h100-sxm", "l40s"))
    assert fast.cluster.network_bytes_per_s > slow.cluster.network_bytes_per_s
    assert transfer_ns(fast, slow, 100) == transfer_ns(slow, fast, 100) == transfer_ns(slow, slow, 100)
    assert transfer_ns(fast, fast, 100) < transfer_ns(fast, slow, 100)


def test_money_and_power_are_those_of_both_kinds() -> None:
    (point, *_) = mixed(search(find("llama3-8b"), SPACE, 512, 128, Slo()).points)
    demand = Demand(hourly=20.0, prices={"h100-sxm": 3.0, "l40s": 1.0})
    counts = point.gpus_by_id
    hour = 3.0 * counts["h100-sxm"] + counts["l40s"]
    assert demand.hour(point) == hour
    assert demand.most_units(point) == int(20.0 / hour)
    watts = demand.watts(point)
    limits = {gpu: catalogue.gpu(gpu).power_w for gpu in counts}
    assert watts is not None
    assert watts > sum((limits[gpu] or 0.0) * count for gpu, count in counts.items())
    assert demand.per_million(point, 100.0) == pytest.approx(hour / (100.0 * point.gpus) / 3600 * 1e6)
    assert Demand(prices={"l40s": 1.0}).hour(point) is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["llama3-8b", "--gpu", "h100-sxm", "--pp", "2"], "takes no pipeline stages, and these engines have 2"),
        (
            ["llama3-8b", "--gpu", "h100-sxm", "--prefill-gpu", "b200"],
            "others on NVIDIA B200 than on NVIDIA H100",
        ),
        (["qwen3-next-80b-a3b", "--gpu", "h200", "--tp", "4", "--prefill-tp", "2"], "from tp 2 to tp 4"),
    ],
)
def test_serve_refuses_what_the_connector_does_not_start(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["serve", *words, "--prefill-replicas", "1", "--requests", "2"]) == 2
    assert reason in capsys.readouterr().err
