"""What would meet an SLO that no deployment meets. A case is one line."""

from __future__ import annotations

import pytest

from presim.serving.answer.metrics import Slo
from presim.serving.deployments.advice import advice
from presim.serving.deployments.deployment_ranking import RankedDeployment
from presim.serving.deployments.deployment_search import Space, estimates
from presim.serving.model_lookup import find
from support.deployments import point


@pytest.mark.parametrize(
    ("gpu", "tpot_ms", "beginnings"),
    [
        ("l40s", 12.0, ["Fewer bits: a checkpoint for --weights fp8 allows 1 x l40s TP", "Another GPU: --gpu "]),
        pytest.param(
            *("h100-sxm", 0.5, ["More GPUs: with up to 8 no engine is estimated to meet it."]), marks=pytest.mark.long
        ),
    ],
)
def test_what_is_estimated_to_meet_the_slo_is_named(gpu: str, tpot_ms: float, beginnings: list[str]) -> None:
    """Where nothing is, that is said of more GPUs; the GPU is the slowest that does."""
    model = find("llama3-8b")
    space = Space((gpu,), tps=(1, 2) if gpu == "l40s" else (1, 2, 4, 8), weights=("bf16",), most_gpus=2)
    sentences = advice(RankedDeployment(point(), "misses", None, 64.0), model, space, 512, 64, Slo(tpot_ms=tpot_ms))
    assert len(sentences) == len(beginnings)
    for sentence, beginning in zip(sentences, beginnings):
        assert sentence.startswith(beginning)
    for sentence in (text for text in sentences if text.startswith("Another GPU")):
        named = Space((sentence.split("--gpu ")[1].split()[0],), tps=(1, 2), weights=("bf16",), most_gpus=2)
        assert min(found.tpot_ms for found in estimates(model, named, 512, 64)) <= tpot_ms
