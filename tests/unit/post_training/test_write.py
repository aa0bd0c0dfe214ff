"""A job in a framework's keys is read back as the same job."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from presim.errors import InputError
from presim.post_training.recipes.recipe_request import read_recipe
from presim.post_training.recipes.write_recipe import settings_for
from presim.post_training.rl_request import RlRequest
from support import rl_jobs

JOBS: list[dict[str, Any]] = [
    {"prompts": 64, "samples": 8, "mini_batch": 16, "offload": ("parameters",), "recompute": "full"},
    {"placement": "separate", "rollout_gpus": 2, "staleness": 1.0, "partial": True, "dp_style": "zero1", "tp": 2},
    {"algorithm": "ppo", "reference": True, "recompute": "none"},
]
READ = ("prompts", "samples", "placement", "rollout_gpus", "staleness", "partial", "tp", "recompute", "dp_style")


@pytest.mark.parametrize("framework", ["verl", "nemo-rl"])
@pytest.mark.parametrize("fields", JOBS)
def test_a_framework_reads_what_is_written(framework: str, fields: dict[str, Any], tmp_path: Path) -> None:
    request = RlRequest(model="qwen3-0.6b", **fields)
    job = rl_jobs.job(is_colocated=request.placement == "colocated")
    settings = settings_for(framework, request, job).lines
    recipe = tmp_path / "recipe.sh"
    recipe.write_text(" ".join(["python train.py", *settings]))
    read = read_recipe(framework, str(recipe), ())
    assert {name: read.fields[name] for name in READ} == {name: getattr(request, name) for name in READ}
    assert read.fields["micro_tokens"] == job.trainer.update_tokens
    assert read.fields["engine"]["tp"] == job.engine.plan.tp
    assert read.world_size == job.placement.gpus


def test_a_filter_is_written_and_turns_are_refused() -> None:
    job = rl_jobs.job(is_colocated=True)
    request = RlRequest(model="qwen3-0.6b", prompts=32, keep=0.5, round_prompts=96)
    assert {"algorithm.filter_groups.enable=True", "data.gen_batch_size=96"} <= {
        *settings_for("verl", request, job).lines
    }
    assert {"grpo.use_dynamic_sampling=True", "grpo.batch_multiplier=3"} <= {
        *settings_for("nemo-rl", request, job).lines
    }
    with pytest.raises(InputError, match="--turns and --reward-model are not written"):
        settings_for("verl", RlRequest(model="qwen3-0.6b", turns=2), job)


def test_slime_and_trl_read_what_is_written(tmp_path: Path) -> None:
    job = rl_jobs.job(is_colocated=True)
    request = RlRequest(model="qwen3-0.6b", prompts=64, samples=8, mini_batch=16, micro_sequences=2, dp_style="zero1")
    script = tmp_path / "run.sh"
    script.write_text("python3 train.py " + " ".join(settings_for("slime", request, job).lines))
    fields = read_recipe("slime", str(script), ()).fields
    names = ("prompts", "samples", "mini_batch", "dp_style", "micro_sequences", "balance", "recompute")
    assert {name: fields[name] for name in names} == {name: getattr(request, name) for name in names}
    request = dataclasses.replace(request, dp_style="fsdp2", lora_rank=8)
    file = tmp_path / "run.yaml"
    file.write_text("\n".join(settings_for("trl", request, job).lines))
    fields = read_recipe("trl", str(file), (), job.placement.gpus).fields
    names = ("prompts", "samples", "mini_batch", "micro_sequences", "lora_rank", "sleep_level")
    assert {name: fields[name] for name in names} == {name: getattr(request, name) for name in names}


@pytest.mark.parametrize(
    "fields",
    [
        {"prompts": 64, "samples": 8, "mini_batch": 16, "sleep_level": 1, "offload": ("parameters", "optimizer")},
        {"algorithm": "ppo", "placement": "separate", "rollout_gpus": 2, "staleness": 1.0, "partial": True},
        {"samples": 4, "reshard": False, "reference": False, "micro_sequences": 2, "logprob_sequences": 4},
    ],
)
def test_openrlhf_reads_what_is_written(fields: dict[str, Any], tmp_path: Path) -> None:
    request = RlRequest(model="qwen3-0.6b", **fields)
    job = rl_jobs.job(is_colocated=request.placement == "colocated")
    job = dataclasses.replace(
        job, trainer=dataclasses.replace(job.trainer, has_reference=request.reference is not False)
    )
    script = tmp_path / "run.sh"
    script.write_text("python3 train.py " + " ".join(settings_for("openrlhf", request, job).lines))
    read = read_recipe("openrlhf", str(script), ())
    assert {name: read.fields[name] for name in fields} == fields
    assert read.world_size == job.placement.gpus


def test_openrlhf_has_no_megatron() -> None:
    request = RlRequest(model="qwen3-0.6b", dp_style="zero1")
    with pytest.raises(InputError, match="OpenRLHF trains with DeepSpeed's ZeRO, not zero1"):
        settings_for("openrlhf", request, rl_jobs.job(is_colocated=True))


def test_what_no_key_says_is_named() -> None:
    request = RlRequest(model="qwen3-0.6b", cut_tail=0.1, reward_seconds=2.0)
    assert settings_for("nemo-rl", request, rl_jobs.job(is_colocated=True)).unsaid == ("cut-tail", "reward-seconds")


def test_other_frameworks_are_refused() -> None:
    with pytest.raises(InputError, match="placements are written for verl, nemo-rl, trl, slime, openrlhf, not 'areal'"):
        settings_for("areal", RlRequest(model="qwen3-0.6b"), rl_jobs.job())


def test_hybrid_pools_are_not_written() -> None:
    request = RlRequest(model="qwen3-0.6b", placement="hybrid")
    with pytest.raises(InputError, match="hybrid pools and pools that score are not written"):
        settings_for("verl", request, rl_jobs.job())
