"""The answer of serving is one value of one type, whose JSON reads back as it was."""

from __future__ import annotations

import dataclasses
import json
import re

import msgspec
import numpy as np
import pytest

from presim.composition.models.description import Checkpoint
from presim.hardware.cluster_choice import choose_cluster
from presim.result.serving import ServingResult
from presim.serving.answer import screen, serving_record
from presim.serving.answer.metrics import slo_of
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.prediction import Prediction, predict
from presim.serving.engines.engine import Life, Scaling
from presim.serving.model_lookup import find
from presim.serving.serving_plan import Offload, ServingPlan
from presim.serving.steps.times import build
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.serving.workloads.workload import make

CASES = {
    "plain": (ServingPlan(), None, WorkloadRecipe(20, Lengths(300), Lengths(20), rate=3.0)),
    "scaled": (ServingPlan(), Life(Scaling(1, 2), mtbf_h=0.5), WorkloadRecipe(20, Lengths(300), Lengths(20), rate=3.0)),
    "tiers": (
        ServingPlan(max_model_len=4096, num_gpu_blocks=300, offload=Offload(1.0, 1.0)),
        None,
        WorkloadRecipe(30, Lengths(600), Lengths(20), rate=3.0, shared_prefix=512, groups=9),
    ),
    "refused": (ServingPlan(), None, WorkloadRecipe(3, Lengths(200_000), Lengths(20))),
}


def _prediction(plan: ServingPlan, life: Life | None, recipe: WorkloadRecipe) -> Prediction:
    engine = build(find("llama3-8b"), plan, choose_cluster(gpu="h100-sxm", world_size=1))
    slo = slo_of(["ttft:500", "tpot:50@mean"], 99.0)
    return predict(Deployment(engine, replicas=2 if life else 1, life=life), generate(recipe), slo, find_knee=False)


@pytest.mark.parametrize("case", CASES)
def test_json_reads_back_as_the_same_value(case: str) -> None:
    prediction = _prediction(*CASES[case])
    for per_request in (False, True):
        encoded = serving_record.encode(
            serving_record.result_of(prediction, per_request=per_request, detailed_steps=per_request)
        )
        saved = msgspec.convert(json.loads(encoded), ServingResult)
        assert serving_record.encode(saved) == encoded
        assert screen.screen(saved)


@pytest.mark.parametrize(
    ("plan", "weights"),
    [
        (ServingPlan(weights="fp8-block", as_published=True), "fp8-block (fp8 in quantization_config)"),
        (ServingPlan(weights="bf16"), "bf16 (--weights; the checkpoint has fp8-block)"),
    ],
)
def test_weights_name_what_the_checkpoint_has(plan: ServingPlan, weights: str) -> None:
    engine = build(find("llama3-8b"), plan, choose_cluster(gpu="h100-sxm", world_size=1))
    checkpoint = Checkpoint(weights="fp8-block", method="fp8", origin="fp8 in quantization_config")
    engine = dataclasses.replace(engine, model=msgspec.structs.replace(engine.model, checkpoint=checkpoint))
    assert serving_record._weights(engine) == weights


def test_the_repr_is_one_line() -> None:
    served, refused = (serving_record.result_of(_prediction(*CASES[case])) for case in ("plain", "refused"))
    assert re.fullmatch(
        r"<ServingResult llama3-8b on 1 x h100-sxm, TP1 bf16: TTFT [\d.]+ ms, TPOT [\d.]+ ms, [\d.]+ tokens/s>",
        repr(served),
    )
    assert repr(refused) == "<ServingResult llama3-8b on 1 x h100-sxm, TP1 bf16: no request was served>"


def test_figures_by_numpy_are_numbers_in_json() -> None:
    """A mean of numpy is a float of its own type, which JSON by structs would refuse."""
    result = serving_record.result_of(_prediction(*CASES["plain"]))
    changed = msgspec.structs.replace(result, per_gpu_output_throughput=np.float64(2.5))
    assert json.loads(serving_record.encode(changed))["per_gpu_output_throughput"] == 2.5


def test_a_load_of_the_users_own_has_no_seed() -> None:
    load = make("own", np.array([0, 1]), np.array([50, 60]), np.array([5, 6]))
    engine = build(find("llama3-8b"), ServingPlan(), choose_cluster(gpu="h100-sxm", world_size=1))
    result = serving_record.result_of(predict(Deployment(engine), load, find_knee=False))
    assert result.workload.seed is None
    assert msgspec.convert(json.loads(serving_record.encode(result)), ServingResult).workload == result.workload
