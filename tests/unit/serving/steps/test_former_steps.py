"""Steps composed of the layers that a model's own code has, against those of the formulas that they replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import build

# Written by the formulas for models that they were right about: Llama 3, Qwen 3, DeepSeek-V3, gpt-oss. A change of
# prices moves these figures, too: then write the new ones, after a look at each.
FORMER = json.loads((Path(__file__).parent / "former_steps.json").read_text())
PROMPTS = (128, 1024, 4096)
DECODES = ((1, 1024), (16, 1024), (64, 4096))


@pytest.mark.parametrize("row", FORMER, ids=[f"{row['model']} {row['gpu']} {row['plan']}" for row in FORMER])
def test_steps_are_within_one_percent_of_the_former_ones(row: dict[str, Any]) -> None:
    plan = ServingPlan(**row["plan"])
    times = build(find(row["model"]), plan, choose_cluster(gpu=row["gpu"], world_size=plan.gpus)).times
    prompts_ms = [times.step_ns([(tokens, tokens)], []) / 1e6 for tokens in PROMPTS]
    decodes_ms = [times.step_ns([], [keys] * sequences) / 1e6 for sequences, keys in DECODES]
    assert prompts_ms == pytest.approx(row["ttft_ms"], rel=0.01)
    assert decodes_ms == pytest.approx(row["tpot_ms"], rel=0.01)
