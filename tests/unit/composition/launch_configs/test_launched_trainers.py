"""Plans of configurations and commands of trainers other than Megatron-LM's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_scripts.launched_plan import read_launch
from presim.errors import InputError

_ACCELERATE = """distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: %s
  fsdp_version: 2
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
%s
"""
_TRAIN = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 3 --gradient_accumulation_steps 5"
_DEEPSPEED = {
    "bf16": {"enabled": "auto"},
    "train_batch_size": "auto",
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto", "contiguous_gradients": True},
    "gradient_clipping": "auto",
}
_AXOLOTL = """base_model: NousResearch/Meta-Llama-3.1-8B
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch_fused
bf16: auto
gradient_checkpointing: true
learning_rate: 2e-5
wandb_project:
%s
"""
_LLAMA_FACTORY = """model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
finetuning_type: full
cutoff_len: 2048
bf16: true
%s
"""
_BATCHES = "train: {micro_batch_size: 1, global_batch_size: 8}\n"
_TORCHTITAN = """[job]
description = "own"
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 6
seq_len = 4096
%s
[parallelism]
tensor_parallel_degree = 2
%s
[activation_checkpoint]
mode = "full"
[optimizer]
name = "AdamW"
lr = 3e-4
"""


def _file(tmp_path: Path, name: str, text: str) -> str:
    (tmp_path / name).write_text(text)
    return f"{tmp_path}/{name}"


def _command(tmp_path: Path, command: str, **files: str) -> LaunchedPlan:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    (tmp_path / "run.sh").write_text(f"CUDA_VISIBLE_DEVICES=0 {command}\n")
    return read_launch(f"{tmp_path}/run.sh", None, ())


def test_a_command_of_accelerate_with_fsdp(tmp_path: Path) -> None:
    command = f"accelerate launch --config_file a.yaml train.py {_TRAIN} --max_seq_length 2048 --bf16"
    launched = _command(tmp_path, command, a__yaml=_ACCELERATE % ("false", ""))
    assert (launched.framework, launched.model, launched.precision) == ("hf", "qwen3-8b", "bf16")
    assert launched.fields == {
        "data_style": "fsdp2", "reshard": False, "recompute": "full", "sequence": 2048, "micro_batch": 3,
    }  # fmt: skip
    assert (launched.world_size, launched.fields_on(16)) == (16, {"global_batch": 240})


def test_sizes_by_slurm_and_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_ACCELERATE % ("true", ""))
    launch = f"accelerate launch --config_file a.yaml --num_machines $SLURM_NNODES own.py {_TRAIN} --max_length 512"
    (tmp_path / "run.sh").write_text(f'#SBATCH --nodes=6\nsrun bash -c "{launch}"\n')
    assert read_launch(f"{tmp_path}/run.sh").nodes == 6
    (tmp_path / "lf.yaml").write_text("model_name_or_path: llama3-8b\nfinetuning_type: full\nbf16: true\n")
    (tmp_path / "run.sh").write_text("NPROC_PER_NODE=4 NNODES=3 llamafactory-cli train lf.yaml\n")
    assert read_launch(f"{tmp_path}/run.sh").world_size == 12


def test_replicas_of_shards(tmp_path: Path) -> None:
    inner = "parallelism_config:\n  parallelism_config_dp_replicate_size: 4\n  parallelism_config_dp_shard_size: 4"
    path = _file(tmp_path, "a.yaml", _ACCELERATE % ("true", inner))
    launched = read_launch(path, "llama3-8b", ("sequence",))
    assert launched.fields["data_style"] == "hsdp"
    assert launched.fields_on(16) == {"shard": 4}
    with pytest.raises(InputError, match="in 4 copies, and 6 GPUs are no multiple"):
        launched.fields_on(6)


def test_deepspeed_sizes_that_are_left_to_the_trainer(tmp_path: Path) -> None:
    """`auto` buckets are of the squared hidden size, and DeepSpeed overlaps by default in stage 3 alone."""
    command = f"deepspeed --num_gpus 4 train.py --deepspeed d.json {_TRAIN} --max_length 1024 --bf16"
    launched = _command(tmp_path, command, d__json=json.dumps(_DEEPSPEED))
    assert launched.framework == "deepspeed"
    assert launched.fields["data_style"] == "zero1"
    assert not launched.fields["overlap"]
    assert set(launched.overrides) == {
        "zero_optimization.stage=2",
        "zero_optimization.reduce_bucket_size=16777216",
        "zero_optimization.contiguous_gradients=true",
    }
    assert launched.world_size == 4


def test_a_configuration_of_deepspeed_alone(tmp_path: Path) -> None:
    config = {**_DEEPSPEED, "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": True}}
    path = _file(tmp_path, "d.json", json.dumps(config))
    launched = read_launch(path, "llama3-8b", ("sequence",))
    assert (launched.fields["global_batch"], launched.fields["micro_batch"]) == (64, 2)
    assert launched.micro_batches is None
    assert any("fp16 is priced as bf16" in note for note in launched.notes)
    with pytest.raises(InputError, match="says how to train, and not what"):
        read_launch(path)


def test_defaults_are_the_trainer_s_own(tmp_path: Path) -> None:
    """LLaMA-Factory and TRL recompute unless told otherwise; a program of the user's does not."""
    text = "model_name_or_path: llama3-8b\nfinetuning_type: full\nbf16: true\nstage: sft\n"
    launched = read_launch(_file(tmp_path, "lf.yaml", text))
    assert (launched.fields["recompute"], launched.fields["sequence"]) == ("full", 2048)
    assert any("DistributedDataParallel" in note for note in launched.notes)
    launched = _command(tmp_path, f"trl sft {_TRAIN}")
    assert (launched.fields["recompute"], launched.fields["sequence"]) == ("full", 1024)
    launched = _command(tmp_path, f"torchrun --nproc_per_node 8 own.py {_TRAIN} --max_seq_length 512 --bf16 True")
    assert "recompute" not in launched.fields


def test_values_that_a_script_takes_from_elsewhere_do_not_matter_where_they_change_no_step(tmp_path: Path) -> None:
    command = f"torchrun --nnodes $NODES own.py {_TRAIN} --max_length 512 --bf16 --output_dir $OUT"
    assert _command(tmp_path, command).fields["sequence"] == 512


def test_a_switch_of_deepspeed_beside_its_file(tmp_path: Path) -> None:
    command = f"deepspeed own.py --deepspeed --deepspeed_config d.json {_TRAIN} --max_length 512 --bf16"
    assert _command(tmp_path, command, d__json=json.dumps(_DEEPSPEED)).framework == "deepspeed"


def test_axolotl(tmp_path: Path) -> None:
    fsdp = "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\nliger_rope: true\nsome_knob: 3"
    launched = read_launch(_file(tmp_path, "a.yml", _AXOLOTL % fsdp))
    assert (launched.framework, launched.model) == ("hf", "llama3-8b")
    assert launched.fields == {
        "data_style": "fsdp2", "reshard": True, "micro_batch": 2, "sequence": 4096, "recompute": "full",
    }  # fmt: skip
    assert any("upper bounds: Liger's kernels" in note for note in launched.notes)
    assert any("left out: some_knob." in note for note in launched.notes)


@pytest.mark.parametrize(
    ("model_id", "name"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"),
    ],
)
def test_hub_ids_are_named_models(tmp_path: Path, model_id: str, name: str) -> None:
    text = _AXOLOTL.replace("NousResearch/Meta-Llama-3.1-8B", model_id) % ""
    assert read_launch(_file(tmp_path, "a.yml", text)).model == name


def test_axolotl_without_shards_has_weights_in_bf16(tmp_path: Path) -> None:
    launched = read_launch(_file(tmp_path, "a.yml", _AXOLOTL % ""))
    assert (launched.framework, launched.precision, launched.fields["data_style"]) == ("eager", None, "ddp")


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ("adapter: lora\nlora_r: 32\nlora_target_linear: true", "--lora_r 32 --lora_target_modules all-linear"),
        ("adapter: lora\nlora_dropout: 0.05", "--lora_r 8 --lora_dropout 0.05"),
        (
            "adapter: qlora\nlora_target_modules: [q_proj, v_proj]",
            "--lora_r 8 --lora_target_modules q_proj v_proj --load_in_4bit --use_bnb_nested_quant",
        ),
    ],
)
def test_axolotl_with_adapters(tmp_path: Path, lines: str, options: str) -> None:
    launched = read_launch(_file(tmp_path, "a.yml", _AXOLOTL % lines))
    assert (launched.framework, launched.precision, launched.fields["data_style"]) == ("hf", "bf16", "ddp")
    assert " ".join(launched.overrides) == options


def test_optimizers_of_bitsandbytes(tmp_path: Path) -> None:
    """Beside adapters the program has them; of whole models that are composed, the plan."""
    text = _AXOLOTL.replace("adamw_torch_fused", "adamw_bnb_8bit")
    adapted = read_launch(_file(tmp_path, "a.yml", text % "adapter: lora"))
    assert adapted.overrides[-2:] == ("--optim", "adamw_bnb_8bit")
    whole = read_launch(_file(tmp_path, "b.yml", text % ""))
    assert (whole.framework, whole.fields["optimizer"], whole.overrides) == ("eager", "adamw-8bit", ())
    with pytest.raises(InputError, match="where ranks hold whole models"):
        read_launch(_file(tmp_path, "c.yml", text % "fsdp_version: 2\ndp_shard_size: 8"))


def test_llama_factory_and_trl_with_adapters(tmp_path: Path) -> None:
    """LLaMA-Factory's adapters are on all linear layers, TRL's where PEFT puts them."""
    text = (
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: lora\n"
        "lora_rank: 64\nbf16: true\n"
        "quantization_bit: 4\nper_device_train_batch_size: 1\n"
    )
    assert " ".join(read_launch(_file(tmp_path, "f.yaml", text)).overrides) == (
        "--lora_r 64 --lora_target_modules all-linear --load_in_4bit --use_bnb_nested_quant"
    )
    words = "trl sft --model_name_or_path meta-llama/Meta-Llama-3-8B --dataset_name x --use_peft --load_in_4bit"
    assert " ".join(read_launch(words).overrides) == "--lora_r 16 --load_in_4bit"


def test_adapters_under_deepspeed(tmp_path: Path) -> None:
    _file(tmp_path, "z3.json", json.dumps({**_DEEPSPEED, "zero_optimization": {"stage": 3}}))
    text = _LLAMA_FACTORY.replace("full", "lora") % "lora_rank: 8\ndeepspeed: z3.json"
    launched = read_launch(_file(tmp_path, "f.yaml", text))
    assert (launched.framework, launched.fields["data_style"]) == ("deepspeed", "fsdp2")
    assert launched.overrides[-4:] == ("--lora_r", "8", "--lora_target_modules", "all-linear")
    with pytest.raises(InputError, match="has adapters on weights of 4 bits under deepspeed"):
        read_launch(_file(tmp_path, "g.yaml", f"{text}quantization_bit: 4\n"))


def test_torchtitan_with_a_pipeline(tmp_path: Path) -> None:
    """The first and the last stage have a layer less; a local batch is divided into micro-batches."""
    degrees = 'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "Interleaved1F1B"\n'
    path = _file(tmp_path, "t.toml", _TORCHTITAN % ("", degrees + "pipeline_parallel_microbatch_size = 2"))
    launched = read_launch(path)
    assert (launched.framework, launched.model) == ("torchtitan", "llama3-8b")
    assert launched.fields["stages"] == (8, 9, 8, 7)
    assert (launched.fields["virtual"], launched.fields["micro_batch"], launched.micro_batches) == (2, 2, 3)
    assert (launched.fields["sequence_parallel"], launched.fields["reshard"]) == (True, False)


@pytest.mark.parametrize(
    ("recipe", "passes"), [("", "fp8-tensor"), ("tensorwise", "fp8-tensor"), ("rowwise", "fp8-row")]
)
def test_torchtitan_s_fp8_has_a_scale_for_each_tensor_unless_it_says_rows(
    tmp_path: Path, recipe: str, passes: str
) -> None:
    path = _file(tmp_path, "t.toml", _TORCHTITAN % ("", "") + "[float8]\nenable_float8_linear = true\n")
    words = f"{path} --float8.recipe_name={recipe}" if recipe else str(path)
    assert read_launch(words).fields["passes"] == (passes,)


def test_torchtitan_s_options_precede_its_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "t.toml", _TORCHTITAN % ('compile = true\ndtype = "bfloat16"', ""))
    launched = read_launch(f"{path} --training.seq_len 512 --activation_checkpoint.mode=none")
    assert (launched.fields["sequence"], launched.fields["recompute"]) == (512, "none")
    assert launched.overrides == ("--compile.enable", "--training.dtype", "bfloat16")
    launched = _command(tmp_path, "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file t.toml")
    assert launched.world_size == 8


_PYTHON = """from torchtitan.config import TrainingConfig
LENGTH = 4 * 1024


def base() -> Trainer.Config:
    spec = model_registry("8B", converters=[MXFP8LinearConverter.Config(model_compile_enabled=True)])
    return Trainer.Config(
        model_spec=spec,
        optimizer=default_adamw(lr=1e-4),
        training=TrainingConfig(%s),
        activation_checkpoint=FullAC.Config(),
    )


def own() -> Trainer.Config:
    config = base()
    config.parallelism.tensor_parallel_degree = 4
    return config
"""


def test_torchtitan_s_configuration_in_python(tmp_path: Path) -> None:
    (tmp_path / "llama3").mkdir()
    tokens = "num_tokens_per_microbatch_per_dp_rank=2 * LENGTH, max_context_length=LENGTH"
    path = _file(tmp_path / "llama3", "registry.py", _PYTHON % tokens)
    launched = read_launch(f"{path} own")
    assert (launched.model, launched.precision) == ("llama3-8b", "mxfp8")
    names = ("sequence", "micro_batch", "tensor", "recompute", "cuda_graphs")
    assert [launched.fields[name] for name in names] == [4096, 2, 4, "full", True]
    assert read_launch(f"{path} base").fields["tensor"] == 1
    with pytest.raises(InputError, match="has 2 configurations; name one"):
        read_launch(path)
    path = _file(tmp_path / "llama3", "registry.py", _PYTHON % "seq_len=length_of(3)")
    with pytest.raises(InputError, match=r"computes training\.seq_len by code that is not run"):
        read_launch(f"{path} own")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yml", _AXOLOTL % "adapter: llama-adapter", "adapters of the kind llama-adapter"),
        ("a.yml", _AXOLOTL % "adapter: lora\nlora_modules_to_save: [lm_head]", "whole modules beside adapters"),
        ("a.yml", _AXOLOTL % "load_in_8bit: true", "weights of 8 bits without adapters"),
        ("a.yml", _AXOLOTL % "rl: dpo", "rl: dpo: its steps are not those of pre-training"),
        ("a.yml", _AXOLOTL.replace("adamw_torch_fused", "muon") % "", "the optimizer muon"),
        ("a.yml", _AXOLOTL.replace("bf16: auto", "") % "", "trains in fp32"),
        ("a.yml", _AXOLOTL.replace("NousResearch/Meta-Llama-3.1-8B", "own/thing") % "", "no named model"),
        ("a.yml", _AXOLOTL % "deepspeed: zero9.json", "there is no such file"),
        ("a.yml", _AXOLOTL % "fsdp_config:\n  offload_params: true", "parameters in host memory"),
        ("a.yml", _AXOLOTL % "dp_shard_size: 2\ntensor_parallel_size: 2", "tensor parallelism of 2"),
        ("t.toml", _TORCHTITAN.replace("8B", "9B") % ("", ""), "trains llama3 9B"),
        ("t.toml", _TORCHTITAN.replace('"full"', '"selective"') % ("", ""), "selective_ac_option 2"),
        (
            "t.toml",
            _TORCHTITAN % ("enable_float8_linear = true", "") + "[float8]\nrecipe_name = 'rowwise_with_gw_hp'\n",
            "scales FP8 rowwise_with_gw_hp, and presim's program for torchtitan has tensorwise and rowwise",
        ),
        ("t.toml", _TORCHTITAN.replace("AdamW", "Muon") % ("", ""), "the optimizer Muon"),
        ("t.toml", _TORCHTITAN % ("", 'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "ZBV"'), "zbv"),
        ("t.toml", "[model]\nname = 3\n", r"no section \[training\]"),
        ("x.yaml", "distributed_type: MULTI_XPU\n", "distributed_type MULTI_XPU"),
        ("x.yaml", "distributed_type: NO\nmixed_precision: 'no'\n", "trains in fp32"),
        ("x.yaml", "name: thing\n", "is no configuration of torchtitan"),
        ("x.yaml", "model: {seq_length: 1, teacher: {a: 1}}\ntrain: {b: 2}\n", "distillation is not composed"),
        ("x.yaml", "model: {seq_length: 1}\ntrain: {b: 2}\ndist: {use_megatron_fsdp: true}\n", "Megatron-FSDP is not"),
        ("x.yaml", "model: {seq_length: 1}\ntrain: {b: 2}\n", "no train.micro_batch_size, which its recipe sets"),
        ("x.yaml", "model: {freeze_vision_model: false}\ntrain: {b: 2}\n", "a vision encoder"),
        ("x.yaml", "model: {seq_length: 1}\nmixed_precision: fp64\n" + _BATCHES, "has mixed_precision fp64"),
        ("a.yaml", "model: {seq_length: 1}\ntrain: {b: 2}\n", "whose recipe names the model: name MODEL"),
        (
            "x.yaml",
            "model: {cp_comm_type: x, seq_length: 1, context_parallel_size: 2}\n" + _BATCHES,
            "cp_comm_type x",
        ),
        ("x.yaml", "- 3\n", "it has no settings"),
        ("x.yaml", _LLAMA_FACTORY % "tensor_model_parallel_size: 1", "size: 1: Megatron trains it"),
        ("x.yaml", _LLAMA_FACTORY % "overlap_grad_reduce: true", "overlap_grad_reduce: true: Megatron trains it"),
        ("x.json", '{"zero_optimization": {"offload_param": {"device": "cpu"}}}', "parameters in host memory"),
        ("x.json", '{"zero_optimization": {"stage": 1}, "optimizer": {"type": "Lamb"}}', "Lamb"),
        ("r.py", "import megatron.bridge\n", "a recipe in Python of Megatron-Bridge"),
        ("r.py", "print(3)\n", "run it under `presim run`"),
    ],
)
def test_refusals(tmp_path: Path, name: str, text: str, words: str) -> None:
    model = None if name[0] in "at" else "llama3-8b"
    with pytest.raises(InputError, match=words):
        read_launch(_file(tmp_path, name, text), model, ())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"accelerate launch dpo.py {_TRAIN} --bf16 --max_length 9", "steps of pre-training and not of dpo"),
        (f"torchrun own.py {_TRAIN} --max_seq_length 512", "it trains in fp32"),
        (f"torchrun own.py {_TRAIN} --max_length 512 --bf16 --optim adafactor", "the optimizer adafactor"),
        (f"torchrun own.py {_TRAIN} --max_length 512 --bf16 --lora_enable", "the program decides which modules"),
        (f"torchrun own.py {_TRAIN} --bf16", "does not say how long samples are"),
        (f"torchrun own.py {_TRAIN} --max_length many --bf16", "no whole number"),
        (f"torchrun own.py {_TRAIN} --max_length 512 --bf16 perhaps", "neither true nor false"),
        ("trl grpo --model_name_or_path llama3-8b", "presim reads `trl sft`"),
        ("torchrun -m torchtitan.train --module llama3 --config llama3_8b", "by --module and --config"),
        ("accelerate launch --config_file absent.yaml train.py --model_name_or_path x", "there is no such file"),
        ("deepspeed own.py --deepspeed $FILE --model_name_or_path llama3-8b", r"deepspeed of run\.sh is \$FILE, which"),
    ],
)
def test_commands_that_are_refused(tmp_path: Path, command: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        _command(tmp_path, command)


def test_torchtitan_s_own_shards_say_the_size_of_the_cluster(tmp_path: Path) -> None:
    path = _file(tmp_path, "t.toml", _TORCHTITAN % ("", "data_parallel_shard_degree = 4"))
    assert read_launch(path).world_size == 8  # with two ranks of tensor parallelism
    path = _file(tmp_path, "t.toml", _TORCHTITAN % ('mixed_precision_param = "float32"', ""))
    with pytest.raises(InputError, match="products in float32"):
        read_launch(path)


def test_activations_in_host_memory_are_named(tmp_path: Path) -> None:
    launched = read_launch(_file(tmp_path, "a.yml", _AXOLOTL % "activation_offloading: true"))
    assert any("memory is an upper bound" in note for note in launched.notes)


def test_a_file_of_megatron_bridge(tmp_path: Path) -> None:
    """Degrees are the plan's, other fields of a step are Bridge's, and logs are neither."""
    text = (
        "model: {seq_length: 4096, tensor_model_parallel_size: 2, sequence_parallel: true, recompute_modules: [a, b]}\n"
        "train: {micro_batch_size: 2, global_batch_size: 64, train_iters: 10}\nmixed_precision: bf16_with_mxfp8_mixed\n"
        "optimizer: {lr: 1.0e-4, clip_grad: 2.0}\nlogger: {log_interval: 1}\nddp: {grad_reduce_in_fp32: true}\n"
        "own: {a: 1}\n"
    )
    launched = read_launch(_file(tmp_path, "b.yaml", text), "llama3-8b")
    assert (launched.framework, launched.precision) == ("megatron", "mxfp8")
    assert launched.fields == {
        "tensor": 2, "micro_batch": 2, "global_batch": 64, "sequence": 4096, "sequence_parallel": True,
        "data_style": "zero1", "overlap": True,
    }  # fmt: skip
    assert launched.overrides == (
        "model.recompute_modules=[a,b]", "optimizer.clip_grad=2.0", "ddp.grad_reduce_in_fp32=true",
    )  # fmt: skip
    assert launched.notes[1:] == (
        "Degrees that the file does not say are 1, and not those of its recipe.",
        "Settings that are not understood, and left out: own.a.",
    )
