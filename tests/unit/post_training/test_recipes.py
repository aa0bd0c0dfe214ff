"""Recipes of frameworks are read as they are given: each key that counts has its meaning, others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.errors import InputError
from presim.post_training.recipes.recipe_request import FromRecipe, read_recipe

VERL = """
set -x
prompts=64
longest=$((1024 * 2))
budget=$(((longest + 4 * 1024) * 2))
MODEL=${MODEL:-Qwen/Qwen3-8B}

# data.train_batch_size=7
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=${prompts} \\
    data.max_prompt_length=$longest \\
    data.max_response_length=$((longest * 2)) \\
    actor_rollout_ref.model.path="$MODEL" \\
    actor_rollout_ref.actor.ppo_mini_batch_size=16 \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$budget \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True \\
    actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.rollout.name=sglang \\
    actor_rollout_ref.rollout.moon_phase=3 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=2
"""
NEMO = """
defaults: base.yaml
grpo:
  num_prompts_per_step: 32
  async_grpo: {enabled: true, max_trajectory_age_steps: 2, in_flight_weight_updates: true}
policy:
  train_global_batch_size: 256
  generation:
    colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}
cluster: {num_nodes: 3}
"""
BASE = """
grpo: {num_generations_per_prompt: 8, some_setting: 1}
policy:
  model_name: Qwen/Qwen3-32B
  max_total_sequence_length: 4096
  train_micro_batch_size: 2
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 4}
  sequence_packing:
    train_mb_tokens: "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}"
cluster: {gpus_per_node: 8}
"""
TRL = "{num_generations: 8, per_device_train_batch_size: 4, gradient_accumulation_steps: 4, beta: 0.04, use_vllm: true}"
AREAL = """
cluster: {n_nodes: 8, n_gpus_per_node: 8}
gconfig: {n_samples: 8, max_new_tokens: 8192, max_tokens: 30000}
rollout: {backend: "sglang:d8t4", max_head_offpolicyness: 2, max_concurrent_rollouts: 128}
actor:
  backend: "megatron:(attn:d4p4t2|ffn:d2p4e4)"
  path: Qwen/Qwen3-30B-A3B
  gradient_checkpointing: true
  kl_ctl: 0.0
  use_decoupled_loss: true
  mb_spec: {max_tokens_per_mb: 32768}
ref: {backend: "${actor.backend}"}
sglang: {mem_fraction_static: 0.8}
train_dataset: {batch_size: 16, max_length: 1024}
"""
RLINF = """
defaults:
  - override hydra/job_logging: stdout
cluster:
  num_nodes: 2
  component_placement: {'actor,rollout,reward': all}
runner: {task_type: reasoning, seq_length: 28672, enable_dynamic_batch_size: False, max_tokens_per_mbs: 28672}
algorithm: {group_size: 16, n_minibatches: 4, training_batch_size_per_gpu: 1, recompute_logprobs: True}
rollout: {model: {model_path: /models/Qwen3-8B}, tensor_parallel_size: 2, max_running_requests: 64}
data: {rollout_batch_size: 512, max_prompt_length: 1024}
actor: {training_backend: megatron, model: {tensor_model_parallel_size: 2, recompute_granularity: full}}
"""
SLIME = "python train.py --hf-checkpoint /models/Qwen3-4B --rollout-batch-size 32 --n-samples-per-prompt 8 \\\n"
SLIME += "--global-batch-size 128 --colocate --max-tokens-per-gpu 9216 --rollout-num-gpus-per-engine 2\n"


def read(
    folder: Path, framework: str, text: str, *overrides: str, name: str = "recipe.sh", gpus: int | None = None
) -> FromRecipe:
    (folder / "base.yaml").write_text(BASE)
    (folder / name).write_text(text)
    return read_recipe(framework, str(folder / name), overrides, gpus)


def test_a_launch_script_of_verl(tmp_path: Path) -> None:
    recipe = read(tmp_path, "verl", VERL, "actor_rollout_ref.rollout.n=4")
    expected = {
        "model": "qwen3-8b", "prompts": 64, "samples": 4, "mini_batch": 16, "micro_tokens": 12288,
        "offload": ("parameters",), "placement": "colocated", "algorithm": "grpo", "reference": False,
    }  # fmt: skip
    assert {name: recipe.fields[name] for name in expected} == expected
    assert recipe.fields["engine"]["kernels"] == "sglang"
    assert (recipe.world_size, recipe.gpus_per_node) == (16, 8)
    assert (recipe.longest_prompt, recipe.longest_response) == (2048, 4096)
    assert recipe.notes[1:] == (
        "Keys of the recipe that are not understood, and left out: actor_rollout_ref.rollout.moon_phase.",
    )


def test_a_recipe_of_nemo_rl_with_the_file_that_it_inherits(tmp_path: Path) -> None:
    recipe = read(tmp_path, "nemo-rl", NEMO, name="recipe.yaml")
    expected = {
        "model": "qwen3-32b", "prompts": 32, "samples": 8, "mini_batch": 32, "tp": 4, "dp_style": "zero1",
        "placement": "separate", "rollout_gpus": 8, "staleness": 2.0, "partial": True, "micro_tokens": 8192,
        "transfer": "packed", "offload": ("reference",),
    }  # fmt: skip
    assert {name: recipe.fields[name] for name in expected} == expected
    assert recipe.world_size == 24
    assert len(recipe.notes) == 1


def test_batches_that_are_not_dynamic_have_a_number_of_sequences(tmp_path: Path) -> None:
    batches = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", "algorithm.adv_estimator=gae"
    fields = read(tmp_path, "verl", VERL, *batches).fields
    assert (fields["micro_sequences"], fields["logprob_sequences"]) == (2, None)
    assert (fields["micro_tokens"], fields["algorithm"]) == (None, "ppo")
    dynamic = read(tmp_path, "verl", VERL, *batches, "actor_rollout_ref.actor.use_dynamic_bsz=True").fields
    assert (dynamic["micro_sequences"], dynamic["micro_tokens"]) == (None, 12288)


def test_how_nemo_rl_starts_vllm_sets_its_limits(tmp_path: Path) -> None:
    """`AsyncLLM` has other defaults than `LLM`; explicit limits, parallel experts and stages are the engine's."""
    plain = read(tmp_path, "nemo-rl", NEMO, name="recipe.yaml").fields
    assert plain["fusions"] == ("norm", "rotary", "activation")
    assert (plain["vllm_start"], plain["engine"].keys() & {"max_num_seqs", "ep", "dp"}) == ("llm", set())
    vllm = "policy.generation.vllm_cfg."
    settings = f"{vllm}async_engine=true", f"{vllm}expert_parallel_size=8", f"{vllm}tensor_parallel_size=2"
    limit = "policy.generation.vllm_kwargs.max_num_seqs=64"
    fields = read(tmp_path, "nemo-rl", NEMO, *settings, limit, name="recipe.yaml").fields
    assert fields["vllm_start"] == "async-llm"
    expected = {"tp": 2, "dp": 4, "ep": True, "max_num_seqs": 64}
    assert {name: fields["engine"][name] for name in expected} == expected


def test_packs_of_nemo_rl_are_of_all_context_parallel_ranks(tmp_path: Path) -> None:
    degrees = "policy.megatron_cfg.context_parallel_size=2", "policy.megatron_cfg.pipeline_model_parallel_size=2"
    fields = read(tmp_path, "nemo-rl", NEMO, *degrees, name="recipe.yaml").fields
    assert (fields["micro_tokens"], fields["pads"], fields["logits"]) == (4096, True, "nemo-rl-megatron")


def test_a_rate_of_verl_cuts_the_tail(tmp_path: Path) -> None:
    fields = read(tmp_path, "verl", VERL, "actor_rollout_ref.rollout.over_sample_rate=0.1").fields
    assert (fields["cut_tail"], fields["engine"]["max_num_seqs"]) == (0.1, 1024)


CONDITIONS = """
tp=${TP:-${OTHER:-4}}
case "${DEVICE}" in
    npu)
        tp=2
        length=64
        ;;
esac
if [ "$tp" = 4 ]; then
    sequences=512
else
    sequences=16
fi
python3 -m verl.trainer.main_ppo model_engine=megatron data.train_batch_size=0 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.rollout.tensor_model_parallel_size=$tp \\
    actor_rollout_ref.rollout.max_num_seqs=$sequences async_training.require_batches=2 actor_rollout_ref.rollout.n=4
"""


def test_what_a_script_sets_under_a_condition_replaces_nothing(tmp_path: Path) -> None:
    fields = read(tmp_path, "verl", CONDITIONS).fields
    assert (fields["engine"]["tp"], fields["engine"]["max_num_seqs"]) == (4, 512)
    assert (fields["dp_style"], fields["fusions"]) == ("zero1", ("norm",))
    assert (fields["prompts"], fields["mini_batch"]) == (8 * 2 * 4, 8)


def test_ranks_of_attention_are_a_part_of_an_engine_of_sglang(tmp_path: Path) -> None:
    engine = read(tmp_path, "slime", SLIME + "--sglang-dp-size 2 --sglang-ep-size 2").fields["engine"]
    assert {name: engine[name] for name in ("tp", "dp", "ep")} == {"tp": 1, "dp": 2, "ep": True}


def test_packs_that_are_off_are_padded_sequences(tmp_path: Path) -> None:
    fields = read(tmp_path, "nemo-rl", NEMO, "policy.sequence_packing.enabled=false", name="recipe.yaml").fields
    assert (fields["micro_sequences"], fields["pads_to_longest"]) == (fields["micro_tokens"] // 4096, True)


def test_engines_of_verl_before_agent_loops_get_parts_of_a_batch(tmp_path: Path) -> None:
    """And the release of SGLang that was current then."""
    mode = "actor_rollout_ref.rollout.mode=sync"
    fields = read(tmp_path, "verl", VERL, mode).fields
    assert (fields["assignment"], fields["controller"]) == ("consecutive", "verl")
    assert fields["sglang_release"] == "0.4.6"
    assert "sglang_release" not in read(tmp_path, "verl", VERL).fields
    assert "assignment" not in read(tmp_path, "verl", VERL).fields


def test_a_variable_that_nothing_sets_counts_as_not_given(tmp_path: Path) -> None:
    launcher = "uv run --frozen --extra vllm python3 -m verl.trainer.main_ppo"
    recipe = read(
        tmp_path, "verl", f"{launcher} model_engine=$ENGINE algorithm.adv_estimator=grpo data.train_batch_size=64\n"
    )
    assert (recipe.fields["dp_style"], recipe.fields["prompts"]) == ("fsdp2", 64)
    assert len(recipe.notes) == 1
    named = f"model_engine=megatron\n{launcher} algorithm.adv_estimator=grpo model_engine=$model_engine\n"
    assert read(tmp_path, "verl", named).fields["dp_style"] == "zero1"


def test_updates_and_filters_of_slime(tmp_path: Path) -> None:
    script = SLIME.replace("--global-batch-size 128", "--num-steps-per-rollout 4")
    recipe = read(tmp_path, "slime", script + "--dynamic-sampling-filter-path filters.check_std\n")
    assert (recipe.fields["mini_batch"], recipe.filters) == (8, True)


def test_a_filter_of_prompts_is_named(tmp_path: Path) -> None:
    recipe = read(tmp_path, "verl", VERL, "algorithm.filter_groups.enable=True", "data.gen_batch_size=192")
    assert recipe.filters
    assert recipe.fields["round_prompts"] == 192


def test_trl_counts_responses_of_a_gpu(tmp_path: Path) -> None:
    recipe = read(tmp_path, "trl", TRL, name="recipe.yaml", gpus=8)
    assert (recipe.fields["prompts"], recipe.fields["mini_batch"], recipe.fields["reference"]) == (16, 16, True)


def test_trl_starts_vllm_for_the_responses_of_a_gpu(tmp_path: Path) -> None:
    engine = read(tmp_path, "trl", TRL, "vllm_tensor_parallel_size=2", name="recipe.yaml", gpus=8).fields["engine"]
    assert engine == {"gpu_memory_utilization": 0.3, "tp": 2, "max_num_seqs": 32, "max_num_batched_tokens": 4096}


def test_arguments_of_slime(tmp_path: Path) -> None:
    recipe = read(tmp_path, "slime", SLIME)
    expected = {"model": "qwen3-4b", "prompts": 32, "mini_batch": 16, "micro_tokens": 9216, "placement": "colocated"}
    assert {name: recipe.fields[name] for name in expected} == expected
    assert recipe.fields["engine"] == {"tp": 2, "kernels": "sglang"}
    spare = read(tmp_path, "slime", SLIME + "--over-sampling-batch-size 48 --sglang-max-running-requests 64\n")
    assert (spare.fields["spare_prompts"], spare.fields["engine"]["max_num_seqs"]) == (16, 64)


def test_settings_without_a_simulation_are_named(tmp_path: Path) -> None:
    """Also those of an inherited file, if their values change time or memory."""
    offloads = "actor_rollout_ref.actor.fsdp_config.offload_policy="
    assert any(f"{offloads}True" in note for note in read(tmp_path, "verl", VERL, f"{offloads}True").notes)
    assert not any(offloads in note for note in read(tmp_path, "verl", VERL, f"{offloads}False").notes)
    inherited = NEMO.replace("base.yaml", "middle.yaml")
    (tmp_path / "middle.yaml").write_text("{defaults: base.yaml, policy: {dtensor_cfg: {cpu_offload: true}}}")
    notes = read(tmp_path, "nemo-rl", inherited, name="recipe.yaml").notes
    assert any("policy.dtensor_cfg.cpu_offload=True" in note for note in notes)


def test_a_reference_with_degrees_of_its_own_is_named(tmp_path: Path) -> None:
    overrides = ("actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.ref.ulysses_sequence_parallel_size=4")
    sentence = "The reference has cp 4 in the recipe; it is simulated as the actor."
    assert sentence in read(tmp_path, "verl", VERL, *overrides).notes
    same = (*overrides, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4")
    assert sentence not in read(tmp_path, "verl", VERL, *same).notes


@pytest.mark.parametrize(
    ("settings", "style"),
    [
        (("config-name=ppo_megatron_trainer.yaml",), "zero1"),
        (("actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",), "zero1"),
        (("config-name=ppo_trainer",), "fsdp2"),
        (("actor_rollout_ref.actor.megatron.param_offload=true", "actor_rollout_ref.actor.strategy=fsdp"), "fsdp2"),
    ],
)
def test_megatron_of_verl_is_named_by_its_configuration(tmp_path: Path, settings: tuple[str, ...], style: str) -> None:
    """Scripts start Megatron workers by the name of a configuration, and say no strategy."""
    launch = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo " + " ".join(
        setting if setting.startswith("actor") else f"--{setting}" for setting in settings
    )
    assert read(tmp_path, "verl", launch).fields["dp_style"] == style


def test_verls_turns_are_asked_for(tmp_path: Path) -> None:
    assert read(tmp_path, "verl", VERL, "actor_rollout_ref.rollout.multi_turn.enable=true").has_turns
    assert not read(tmp_path, "verl", VERL).has_turns


def test_megatron_of_verl_recomputes_where_its_own_key_says_so(tmp_path: Path) -> None:
    assert read(tmp_path, "verl", VERL, "model_engine=megatron").fields["recompute"] == "none"
    full = "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full"
    assert read(tmp_path, "verl", VERL, "model_engine=megatron", full).fields["recompute"] == "full"
    assert read(tmp_path, "verl", VERL, full).fields["recompute"] == "full"


def test_adapters_padding_and_sleep(tmp_path: Path) -> None:
    fields = read(
        tmp_path, "verl", VERL, "actor_rollout_ref.model.lora_rank=32",
        "actor_rollout_ref.rollout.free_cache_engine=false",
        "actor_rollout_ref.model.use_remove_padding=False", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "trainer.balance_batch=False",
    ).fields  # fmt: skip
    assert (fields["lora_rank"], fields["sleep_level"], fields["balance"]) == (32, 0, False)
    assert (fields["pads"], fields["micro_tokens"]) == (True, 2 * (2048 + 4096))
    trl = read(tmp_path, "trl", TRL, name="recipe.yaml", gpus=8).fields
    assert (trl["micro_sequences"], trl["pads_to_longest"], trl["sleep_level"], trl["balance"]) == (4, True, 0, False)


def test_slime_trains_with_megatron_and_may_generate_ahead(tmp_path: Path) -> None:
    assert read(tmp_path, "slime", SLIME).fields["dp_style"] == "zero1"
    apart = SLIME.replace("--colocate ", "").replace("train.py", "train_async.py") + "--rollout-num-gpus 8\n"
    assert read(tmp_path, "slime", apart).fields["staleness"] == 1
    collected = (
        SLIME.replace("--colocate ", "").rstrip() + " --colocate \\\n   ${MODEL_ARGS[@]} \\\n   ${CKPT_ARGS[@]}\n"
    )
    assert read(tmp_path, "slime", collected).fields["placement"] == "colocated"
    sizes = SLIME + "--sglang-cuda-graph-bs 1 2 4 $(seq 8 8 64)\n"
    assert read(tmp_path, "slime", sizes).fields["engine"]["graph_tokens"] == 64
    with pytest.raises(InputError, match="supervised training generates nothing"):
        read(tmp_path, "slime", SLIME + "--loss-type sft_loss\n")


def test_ppo_of_nemo_rl_has_keys_of_its_own(tmp_path: Path) -> None:
    text = NEMO.replace("grpo:\n  num", "ppo:\n  ppo_epochs: 3\n  num_generations_per_prompt: 4\n  num")
    fields = read(tmp_path, "nemo-rl", text, name="recipe.yaml").fields
    assert {name: fields[name] for name in ("algorithm", "prompts", "samples", "epochs")} == {
        "algorithm": "ppo", "prompts": 32, "samples": 4, "epochs": 3,
    }  # fmt: skip


def test_a_python_script_that_makes_the_configuration_of_trl(tmp_path: Path) -> None:
    script = """
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(num_generations=8, per_device_train_batch_size=4, use_vllm=True, max_completion_length=1024,
                  gradient_accumulation_steps=make())
GRPOTrainer(model="Qwen/Qwen3-0.6B", args=args, peft_config=LoraConfig(r=8))
"""
    recipe = read(tmp_path, "trl", script, name="train.py", gpus=8)
    assert (recipe.fields["model"], recipe.fields["prompts"], recipe.longest_response) == ("qwen3-0.6b", 4, 1024)
    assert recipe.fields["lora_rank"] == 8
    with pytest.raises(InputError, match=r"train\.py makes no GRPOConfig or RLOOConfig"):
        read(tmp_path, "trl", "print(1)", name="train.py", gpus=8)


def test_generation_without_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="use_vllm is not set"):
        read(tmp_path, "trl", TRL.replace("use_vllm: true", "use_vllm: false"), name="recipe.yaml", gpus=8)


@pytest.mark.parametrize(
    ("framework", "text", "sentence"),
    [
        (
            "verl",
            "run actor_rollout_ref.actor.ppo_mini_batch_sise=4",
            "verl has no key 'actor_rollout_ref.actor.ppo_mini_batch_sise'; did you mean "
            "actor_rollout_ref.actor.ppo_mini_batch_size?",
        ),
        (
            "verl",
            "run algorithm.adv_estimator=gea",
            "algorithm.adv_estimator: 'gea' is not simulated; there are gspo, cispo, grpo_vectorized, grpo_passk, gpg, "
            "gdpo, opo, optimal_token_baseline, grpo, gae, ppo, rloo, reinforce_plus_plus, "
            "reinforce_plus_plus_baseline, rloo_vectorized",
        ),
        (
            "verl",
            "run actor_rollout_ref.rollout.n=4 data.train_batch_size=many",
            "data.train_batch_size has a value that is not understood, 'many'; correct it",
        ),
        (
            "verl",
            "run actor_rollout_ref.actor.strategy=veomni",
            "actor_rollout_ref.actor.strategy: 'veomni' is not simulated; there are fsdp, fsdp2, megatron",
        ),
        (
            "nemo-rl",
            "run data.train_batch_size=4",
            "no key of the recipe is of nemo-rl's reinforcement learning (grpo.*, ppo.*, policy.generation.*); name "
            "another file",
        ),
        (
            "trl",
            "run --num_generations 8 --use_vllm true",
            "TRL's batch is per GPU, and its recipe does not say how many there are: add --world-size",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, framework: str, text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, framework, text)
    assert str(error.value) == sentence


def test_a_launcher_that_computes_its_arguments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("print('--rollout-batch-size 32')\n")
    with pytest.raises(InputError, match="computes slime's arguments while it runs, and presim does not run it"):
        read_recipe("slime", str(tmp_path / "run.py"), ())


def test_an_argument_of_several_lines_ends_no_command(tmp_path: Path) -> None:
    text = """echo "it's"
ray job submit --runtime-env-json='{
  "env_vars": {"PYTHONPATH": "/root"}
}' \\
  -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 4 --colocate --rollout-batch-size 32
"""
    recipe = read(tmp_path, "slime", text)
    assert (recipe.world_size, recipe.fields["placement"], recipe.fields["prompts"]) == (8, "colocated", 32)


def test_a_command_within_quotes_is_read(tmp_path: Path) -> None:
    text = """srun --nodes 2 bash -c "cd /root
  python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 4 --colocate --rollout-batch-size 32
"
"""
    recipe = read(tmp_path, "slime", text)
    assert (recipe.world_size, recipe.fields["placement"], recipe.fields["prompts"]) == (8, "colocated", 32)


def test_a_command_within_quotes_that_backslashes_join_is_read(tmp_path: Path) -> None:
    text = 'srun bash -c "cd /root \\\n && python3 train.py --actor-num-nodes 2 --colocate --rollout-batch-size 32"\n'
    assert read(tmp_path, "slime", text).world_size == 16


def test_backends_of_areal_are_pools_with_degrees(tmp_path: Path) -> None:
    recipe = read(tmp_path, "areal", AREAL, name="config.yaml")
    fields = recipe.fields
    assert (fields["placement"], fields["rollout_gpus"], recipe.world_size, recipe.gpus_per_node) == (
        "separate",
        32,
        64,
        8,
    )
    assert {name: fields[name] for name in ("tp", "pp", "ep", "cp")} == {"tp": 2, "pp": 4, "ep": 4, "cp": 1}
    assert (fields["dp_style"], fields["recompute"], fields["micro_tokens"]) == ("zero1", "full", 32768)
    assert (fields["staleness"], fields["partial"], fields["old_logprobs"], fields["reference"]) == (
        2.0,
        True,
        True,
        False,
    )
    assert (fields["prompts"], fields["samples"], fields["mini_batch"]) == (16, 8, 4)
    assert fields["engine"] == {"kernels": "sglang", "tp": 4, "pp": 1, "gpu_memory_utilization": 0.8}
    assert (recipe.longest_prompt, recipe.longest_response) == (1024, 8192)
    assert "rollout.max_concurrent_rollouts=128" in recipe.notes[1]
    with_reference = read(tmp_path, "areal", AREAL, "actor.kl_ctl=0.1", name="config.yaml")
    assert with_reference.fields["reference"]


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("cluster.n_nodes=2", "the backends take 64 GPUs, and 2 nodes of 8 have 16; raise cluster.n_nodes"),
        ("actor.backend=gpu", "'gpu' is no backend with its degrees; write it as fsdp:d4t2"),
        ("rollout.backend=fsdp:d8", "rollout.backend fsdp; the first is one of fsdp, archon, megatron, the second of"),
        ("rollout.max_head_offpolicynes=2", "did you mean rollout.max_head_offpolicyness?"),
    ],
)
def test_backends_of_areal_that_cannot_be_are_refused(tmp_path: Path, override: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, "areal", AREAL, override, name="config.yaml")
    assert sentence in str(error.value)


def test_one_string_names_both_sides_of_an_earlier_recipe_of_areal(tmp_path: Path) -> None:
    text = "{allocation_mode: sglang:d2p1t2+d2p1t1c2, actor: {path: Qwen/Qwen3-8B}, train_dataset: {batch_size: 8}}"
    fields = read(tmp_path, "areal", text, name="config.yaml").fields
    assert (fields["rollout_gpus"], fields["engine"]["tp"], fields["cp"], fields["dp_style"]) == (4, 2, 2, "fsdp2")


def test_components_of_rlinf_are_on_the_same_gpus_or_apart(tmp_path: Path) -> None:
    shared = read(tmp_path, "rlinf", RLINF, name="config.yaml")
    assert (shared.fields["placement"], shared.world_size, shared.gpus_per_node) == ("colocated", 16, 8)
    assert (shared.fields["prompts"], shared.fields["samples"], shared.fields["mini_batch"]) == (512, 16, 128)
    assert (shared.fields["micro_sequences"], shared.fields["assignment"]) == (1, "consecutive")
    assert shared.fields["engine"]["max_num_seqs"] == 64
    placement = "  component_placement: {rollout: 0-3, inference: 4-7, actor: 8-15, reward: 0-3}"
    apart = read(
        tmp_path,
        "rlinf",
        RLINF.replace("  component_placement: {'actor,rollout,reward': all}", placement),
        name="b.yaml",
    )
    assert (apart.fields["placement"], apart.fields["rollout_gpus"], apart.world_size) == ("separate", 4, 16)
    assert "simulated as training after the rollout" in apart.notes[1]
    assert "The 4 GPUs of the inference component are simulated as the actor's." in apart.notes
    with pytest.raises(InputError, match=r"did you mean data\.rollout_batch_size\?"):
        read(tmp_path, "rlinf", RLINF, "data.rollout_batch_sise=3", name="b.yaml")
    overlap = RLINF.replace("'actor,rollout,reward': all", "actor: 0-9, rollout: 8-15")
    with pytest.raises(InputError, match="actor and rollout share 2 of 16 GPUs"):
        read(tmp_path, "rlinf", overlap, name="c.yaml")
    with pytest.raises(InputError, match="takes RLinf's reasoning and coding_online_rl"):
        read(tmp_path, "rlinf", RLINF, "runner.task_type=embodied", name="d.yaml")
