"""Steps of vLLM's own model runner on the emulated GPU: each batch runs as asked, and its times follow its size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.hardware.choose import choose_cluster
from presim.serving.model import config_of, from_config
from presim.serving.plan import Plan
from presim.serving.steps.captured import with_captured
from presim.serving.steps.times import build
from presim.verbs.capture_steps import capture_request, capture_steps
from presim.verbs.step_times import read_captured

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm"), pytest.mark.slow]
PLAN = Plan(max_num_seqs=8, max_num_batched_tokens=512, max_model_len=4096, cuda_graphs=False)


def test_batches_run_as_asked_and_are_timed(tmp_path: Path) -> None:
    """Two layers of Llama-3-8B; the steps are the asked ones, weights are read once in each, and tokens add up."""
    config = {**config_of("llama3-8b")[0], "num_hidden_layers": 2}
    engine = build(from_config(config, "two layers"), PLAN, choose_cluster(gpu="h100-sxm", world_size=1))
    asked = capture_request(engine, config)
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    capture_steps(tmp_path, engine.cluster, lambda text: None)
    found = read_captured(tmp_path, engine.cluster)
    assert [(len(one.decodes), sum(queries for queries, _ in one.prefills)) for one in found.samples] == [
        (len(one["decodes"]), sum(one["prefills"])) for one in asked["batches"]
    ]
    least_ns = engine.memory.weights / 2 / engine.cluster.gpu.memory_bytes_per_s * 1e9  # without the embedding
    decodes = [one for one in found.samples if not one.prefills and not one.held_out]
    assert all(least_ns < one.device_ns < 20 * least_ns for one in decodes)
    assert all(one.prepare_ns > 1e5 and one.finish_ns > 1e3 and one.head_ns > 1e5 for one in decodes)
    prompt = next(one for one in found.samples if sum(queries for queries, _ in one.prefills) == 512)
    assert prompt.attention_ns > 0
    steps = with_captured(engine, found).steps
    assert steps is not None
    assert float(steps["held_out_median_error"]) < 0.3
