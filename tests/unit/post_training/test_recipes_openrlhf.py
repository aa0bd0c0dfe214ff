"""Arguments of OpenRLHF mean the same under their present and former names, and its models get their pools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from presim.errors import InputError
from presim.post_training.recipes.openrlhf_facts import gpus_per_node
from presim.post_training.recipes.recipe_request import FromRecipe, read_recipe
from presim.post_training.rl_job import ScoringPool

PRESENT = """--actor.model_name_or_path Qwen/Qwen3-8B --rollout.batch_size 64 --rollout.n_samples_per_prompt 8
--train.batch_size 128 --rollout.max_new_tokens 4096 --data.max_len 5120 --algo.advantage.estimator group_norm
--actor.num_nodes 1 --actor.num_gpus_per_node 8 --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.colocate_all
--ds.zero_stage 3 --ds.enable_sleep --vllm.enable_sleep --vllm.enforce_eager --ds.packing_samples
--train.dynamic_batch_enable --train.max_tokens_per_gpu 16384 --ds.ring_attn_size 2 --algo.kl.init_coef 0
--actor.gradient_checkpointing_enable --actor.adam.lr 1e-6"""
FORMER = """--pretrain Qwen/Qwen3-8B --rollout_batch_size 64 --n_samples_per_prompt 8
--train_batch_size 128 --generate_max_len 4096 --prompt_max_len 1024 --advantage_estimator group_norm
--actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --colocate_all_models
--zero_stage 3 --deepspeed_enable_sleep --vllm_enable_sleep --enforce_eager --packing_samples
--use_dynamic_batch --train_max_tokens_per_gpu 16384 --ring_attn_size 2 --init_kl_coef 0
--gradient_checkpointing --actor_learning_rate 1e-6"""
READ: dict[str, Any] = {
    "prompts": 64,
    "samples": 8,
    "mini_batch": 16,
    "algorithm": "grpo",
    "reference": False,
    "cp": 2,
    "micro_tokens": 16384,
    "logprob_tokens": 16384,
    "recompute": "full",
    "dp_style": "fsdp2",
    "reshard": True,
    "placement": "colocated",
    "offload": ("parameters", "optimizer"),
    "sleep_level": 1,
    "balance": True,
}
APART = (
    PRESENT.replace("--train.colocate_all", "").replace("group_norm", "gae").replace("init_coef 0", "init_coef 0.01")
)


def read(folder: Path, text: str, *overrides: str) -> FromRecipe:
    (folder / "run.sh").write_text("python3 -m openrlhf.cli.train_ppo_ray " + text.replace("\n", " \\\n") + "\n")
    return read_recipe("openrlhf", str(folder / "run.sh"), overrides)


@pytest.mark.parametrize(("text", "start"), [(PRESENT, "async-llm"), (FORMER, "llm")])
def test_both_notations_mean_the_same(text: str, start: str, tmp_path: Path) -> None:
    recipe = read(tmp_path, text)
    assert {name: recipe.fields[name] for name in READ} == READ
    assert recipe.fields["vllm_start"] == start
    assert {name: recipe.fields["engine"][name] for name in ("tp", "cuda_graphs", "prefix_caching")} == {
        "tp": 2,
        "cuda_graphs": False,
        "prefix_caching": False,
    }
    assert (recipe.world_size, recipe.gpus_per_node) == (8, 8)
    assert (recipe.longest_prompt, recipe.longest_response) == (1024, 4096)
    assert recipe.notes == (f"Read as openrlhf's: {tmp_path / 'run.sh'}.",)


def test_models_that_are_not_colocated_have_pools(tmp_path: Path) -> None:
    text = APART + " --ref.num_gpus_per_node 4 --critic.num_gpus_per_node 4 --reward.num_gpus_per_node 4"
    text += " --reward.model_name_or_path rm"
    recipe = read(tmp_path, text)
    pools = tuple(ScoringPool(role, 4, (role,)) for role in ("reference", "critic", "reward"))
    assert recipe.fields["scoring_pools"] == pools
    assert (recipe.fields["placement"], recipe.fields["rollout_gpus"], recipe.world_size) == ("separate", 8, 28)
    shared = read(tmp_path, text + " --train.colocate_actor_ref --train.colocate_critic_reward")
    assert shared.fields["scoring_pools"] == (ScoringPool("critic", 4, ("critic", "reward")),)
    assert shared.world_size == 20


def test_asynchronous_engines_have_gpus_of_their_own(tmp_path: Path) -> None:
    recipe = read(tmp_path, PRESENT + " --train.async_enable --train.async_queue_size 2 --train.partial_rollout_enable")
    fields = recipe.fields
    assert (fields["placement"], fields["staleness"], fields["partial"]) == ("separate", 2.0, True)
    assert recipe.world_size == 16


def test_responses_are_counted_without_dynamic_batches(tmp_path: Path) -> None:
    fields = read(tmp_path, FORMER.replace("--use_dynamic_batch", "").replace("--packing_samples", "")).fields
    assert (fields["micro_sequences"], fields["logprob_sequences"], fields["pads_to_longest"]) == (4, 8, True)
    assert (fields["micro_tokens"], fields["balance"]) == (None, False)


def test_a_stage_that_is_simulated_otherwise_is_named(tmp_path: Path) -> None:
    recipe = read(tmp_path, PRESENT.replace("zero_stage 3", "zero_stage 2"))
    assert recipe.fields["reshard"] is False
    assert recipe.notes[1].startswith("Stage 2 of DeepSpeed's ZeRO is simulated as FSDP2")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            PRESENT.replace("num_engines 4", "num_engines 3"),
            "3 engines of 2 GPUs do not fill the 8 GPUs of the actor, which they share; change vllm.num_engines or "
            "vllm.tensor_parallel_size",
        ),
        (
            PRESENT + " --rollout.batch_sizes 32",
            "openrlhf has no key 'rollout.batch_sizes'; did you mean rollout.batch_size?",
        ),
        (
            PRESENT.replace("--vllm.num_engines 4", ""),
            "the recipe generates with the training model, step by step (vllm.num_engines is not set), which is not "
            "simulated; add vllm.num_engines",
        ),
    ],
)
def test_what_cannot_be_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("pools", "size"), [((2, 2, 4), 8), ((8, 8), 8), ((4, 4, 4), 6), ((8, 4, 4, 12), 4), ((6, 6), 6)]
)
def test_nodes_hold_whole_pools(pools: tuple[int, ...], size: int) -> None:
    assert gpus_per_node(pools) == size
