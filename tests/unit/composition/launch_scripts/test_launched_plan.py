"""Plans of launch scripts of Megatron-LM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.composition.graph.take import config_file
from presim.composition.launch_scripts.launched_plan import LaunchedPlan, read_launch
from presim.errors import InputError
from presim.system.files import decode_json, read_bytes

_DENSE = (
    "--num-layers 24 --hidden-size 2048 --ffn-hidden-size 5632 --num-attention-heads 16 --group-query-attention "
    "--num-query-groups 4 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    "--untie-embeddings-and-output-weights --vocab-size 50000 --seq-length 4096 --micro-batch-size 2 "
    "--global-batch-size 64 --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2 "
    "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --lr 3e-4 --data-path d"
)
_DEEP = (
    " --multi-latent-attention --num-experts 16 --moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 1024 "
    "--moe-layer-freq ([0]*1+[1]*23) --kv-lora-rank 256 --qk-head-dim 64 --expert-model-parallel-size 8"
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "presim.composition.launch_scripts.launched_plan.platformdirs.user_cache_dir", lambda _: str(tmp_path / "cache")
    )


def _read(tmp_path: Path, arguments: str = "", model: str | None = None, without: str = "") -> LaunchedPlan:
    options = _DENSE.replace(without, "") + arguments
    quoted = " ".join(f"'{word}'" for word in options.split())
    (tmp_path / "run.sh").write_text(f"torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py {quoted}\n")
    return read_launch(f"NODES=4 {tmp_path}/run.sh", model)


def _config(launched: LaunchedPlan) -> dict[str, object]:
    path = config_file(launched.model)
    assert path is not None
    return decode_json(read_bytes(path, ""), dict[str, object])


def test_a_dense_launch(tmp_path: Path) -> None:
    launched = _read(tmp_path, " --num-layers-per-virtual-pipeline-stage 3 --fp8-format hybrid --fp8-recipe blockwise")
    assert launched.fields == {
        "sequence": 4096, "micro_batch": 2, "global_batch": 64, "tensor": 4, "pipeline": 2, "virtual": 4,
        "sequence_parallel": True, "data_style": "zero1", "overlap": True,
    }  # fmt: skip
    assert (launched.precision, launched.nodes, launched.gpus_per_node) == ("fp8-block", 4, 8)
    assert {"model.tp_comm_overlap=false", "model.cross_entropy_loss_fusion=false"} <= set(launched.overrides)
    config = _config(launched)
    assert config["model_type"] == "llama"
    assert config["vocab_size"] == 50176  # a multiple of 128 x 4
    assert launched.notes == ("Read from run.sh: pretrain_gpt.py.",)


def test_a_launch_with_latent_attention_and_experts(tmp_path: Path) -> None:
    launched = _read(tmp_path, _DEEP)
    config = _config(launched)
    names = ("model_type", "n_routed_experts", "n_shared_experts", "first_k_dense_replace", "qk_nope_head_dim")
    assert [config[name] for name in names] == ["deepseek_v3", 16, 2, 1, 64]
    assert launched.fields["expert"] == 8


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (" --recompute-activations", "model.recompute_modules=[core_attn]"),
        (" --recompute-granularity full --recompute-num-layers 2", "model.recompute_num_layers=2"),
        (" --recompute-granularity selective --recompute-modules mlp moe_act", "model.recompute_modules=[mlp,moe_act]"),
        (" --activations-checkpoint-method uniform", "model.recompute_granularity=full"),
        (" --decoder-first-pipeline-num-layers 10", "model.num_layers_in_first_pipeline_stage=10"),
        (" --pipeline-model-parallel-layout E(tt|)*15,tt|L", "model.pipeline_model_parallel_layout='E(tt|)*15,tt|L'"),
        (" --tp-comm-overlap", "model.tp_comm_overlap=true"),
        (" --grad-reduce-in-bf16", "ddp.grad_reduce_in_fp32=false"),
        ("", "mixed_precision.grad_reduce_in_fp32=true"),
        ("", "model.cuda_graph_impl=none"),
        (" --fp8-format hybrid", "mixed_precision.fp8_param_gather=false"),
        (" --no-rope-fusion", "model.apply_rope_fusion=false"),
        (" --no-masked-softmax-fusion", "model.masked_softmax_fusion=false"),
        (" --no-bias-swiglu-fusion", "model.bias_activation_fusion=false"),
        (" --calculate-per-token-loss", "ddp.average_in_collective=false"),
    ],
)
def test_options_are_fields_of_bridge(tmp_path: Path, arguments: str, field: str) -> None:
    assert field in _read(tmp_path, arguments).overrides


def test_overlaps_that_the_launch_lacks_are_off(tmp_path: Path) -> None:
    assert not _read(tmp_path, without="--overlap-grad-reduce").fields["overlap"]
    assert "ddp.overlap_param_gather=false" in _read(tmp_path, without="--overlap-param-gather").overrides
    assert _read(tmp_path, without="--use-distributed-optimizer").fields["data_style"] == "ddp"


def test_what_is_not_understood_is_named(tmp_path: Path) -> None:
    assert "left out: --new-knob." in _read(tmp_path, " --new-knob 3").notes[-1]
    assert "--fp16 is priced as bf16" in " ".join(_read(tmp_path, " --fp16", without="--bf16").notes)


@pytest.mark.parametrize(
    ("arguments", "without", "words"),
    [
        (" --use-megatron-fsdp", "", "Megatron-FSDP"),
        (" --vision-model-type clip", "", "a vision encoder"),
        (" --zero-stage 2", "", "DeepSpeed within Megatron"),
        (" --tp-com-overlap", "", "did you mean --tp-comm-overlap"),
        ("", "--vocab-size 50000", "does not say its vocabulary"),
        ("", "--bf16", "neither --bf16 nor --fp16"),
        (" --num-layers-per-virtual-pipeline-stage 7", "", "does not divide 24 layers"),
        (" --fp8-format hybrid --fp8-recipe own", "", "--fp8-recipe own is not read"),
        (" --quick-geglu", "", "name MODEL before --from"),
        (" --optimizer muon", "", "--optimizer muon: presim simulates adam alone"),
        (" --transformer-impl local", "", "--transformer-impl local: presim simulates transformer_engine alone"),
        (" --norm-epsilon small", "", "--norm-epsilon is 'small', and no number"),
        (" --context-parallel-size two", "", "no whole number"),
        ("", "--normalization RMSNorm", "no family here"),
    ],
)
def test_refusals(tmp_path: Path, arguments: str, without: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        _read(tmp_path, arguments, without=without)


@pytest.mark.parametrize(
    ("arguments", "samples"),
    [
        (" --rampup-batch-size 16 16 1000000", 64),
        (' --step-batch-size-schedule "0:16 2.4B:320 12B:1536"', 1536),
    ],
)
def test_of_a_growing_batch_the_last_size_is_composed(tmp_path: Path, arguments: str, samples: int) -> None:
    options = _DENSE if samples == 64 else _DENSE.replace("--global-batch-size 64", "")
    (tmp_path / "run.sh").write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {options}{arguments}\n")
    launched = read_launch(f"{tmp_path}/run.sh")
    assert launched.fields["global_batch"] == samples
    assert (
        f"The launch's batch grows during the run: its last size, {samples:,} samples, is composed." in launched.notes
    )


def test_programs_of_megatron_that_do_not_train_are_refused(tmp_path: Path) -> None:
    options = (
        "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 400 --bf16"
    )
    script = f"torchrun --nproc_per_node 8 tools/%s --vocab-size 50000 {options} %s\n"
    (tmp_path / "run.sh").write_text(script % ("generate_samples_gpt.py", "--out-seq-length 20"))
    with pytest.raises(
        InputError, match=r"^run.sh launches generate_samples_gpt.py without --train-iters or --train-sa"
    ):
        read_launch(f"{tmp_path}/run.sh")
    (tmp_path / "run.sh").write_text(script % ("main.py", "--train-iters 20"))
    assert read_launch(f"{tmp_path}/run.sh").fields["micro_batch"] == 400


def test_a_module_that_is_no_trainer_of_presim_s_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node=8 -m scripts.base_train -- --depth=24\n")
    with pytest.raises(InputError, match=r"^run.sh launches scripts.base_train, whose arguments are of no trainer"):
        read_launch(f"{tmp_path}/run.sh")


def test_dropout_is_the_launch_s_or_megatron_s_own(tmp_path: Path) -> None:
    launched = _read(tmp_path, " --hidden-dropout 0 --optimizer adam --transformer-impl transformer_engine")
    assert {"model.hidden_dropout=0.0", "model.attention_dropout=0.1"} <= set(launched.overrides)


def test_options_that_only_sound_like_logs_or_data_are_named(tmp_path: Path) -> None:
    launched = _read(tmp_path, " --log-interval 10 --reset-attention-mask --data-parallel-sharding-strategy optim")
    assert "left out: --reset-attention-mask, --data-parallel-sharding-strategy." in launched.notes[-1]


def test_a_value_that_the_script_does_not_say_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"TP=$2\npython pretrain_gpt.py {_DENSE} --context-parallel-size $TP\n")
    with pytest.raises(InputError, match=r"--context-parallel-size is \$2, which the script does not say"):
        read_launch(f"{tmp_path}/run.sh")


def test_a_named_model_has_the_sizes_of_the_launch(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="llama3-8b has hidden_size = 4096, and the launch 2048"):
        _read(tmp_path, model="llama3-8b")
    own = json.loads(Path(_read(tmp_path).model).read_text()) | {"vocab_size": 777, "rope_theta": 5e5}
    (tmp_path / "config.json").write_text(json.dumps(own))
    launched = _read(tmp_path, model=str(tmp_path / "config.json"), without="--vocab-size 50000")
    assert (launched.model, len(launched.notes)) == (str(tmp_path / "config.json"), 1)
    (tmp_path / "config.json").write_text(json.dumps(own | {"intermediate_size": 5000}))
    with pytest.raises(InputError, match="intermediate_size = 5000, and the launch 5632"):
        _read(tmp_path, model=str(tmp_path / "config.json"))


def test_scripts_that_launch_no_trainer_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo nothing\n")
    with pytest.raises(InputError, match="launches no trainer that presim reads"):
        read_launch(f"{tmp_path}/run.sh")
    (tmp_path / "own.sh").write_text("torchrun --nproc_per_node 8 own.py --lr 3 --size 5 --depth 3 --width 9\n")
    with pytest.raises(InputError, match=r"own\.sh launches own\.py, whose arguments are of no trainer"):
        read_launch(f"{tmp_path}/own.sh")


_MLPERF = """source $(dirname ${BASH_SOURCE[0]})/config_common.sh
export MINIBS=6
export TENSOR_MODEL_PARALLEL=2
export PIPELINE_MODEL_PARALLEL=%s
export INTERLEAVED_PIPELINE=%s
export CONTEXT_PARALLEL=2
export MICRO_BATCH_SIZE=2
export DGXNNODES=4
export DGXNGPU=8
"""


def test_variables_of_an_mlperf_submission(tmp_path: Path) -> None:
    """Files that are sourced by a program's output are looked for beside the script."""
    (tmp_path / "config_common.sh").write_text(
        "export MODEL_SIZE='405b'\nexport FP8=True FP8_RECIPE=tensorwise\nexport MCORE_CUDA_GRAPH=1\n"
        "export FP8_DPA=1 USE_TE_OPS=1\n"
        "export TP_COMM_OVERLAP=False ASYM_PP_LOSS=True\n"
    )
    (tmp_path / "config_x.sh").write_text(_MLPERF % (4, 3))
    launched = read_launch(f"{tmp_path}/config_x.sh")
    assert (launched.model, launched.precision, launched.nodes) == ("llama3-405b", "fp8-current", 4)
    assert launched.fields == {
        "sequence": 8192, "micro_batch": 2, "tensor": 2, "pipeline": 4, "virtual": 3, "context": 2,
        "context_style": "ring", "sequence_parallel": True, "data_style": "zero1", "overlap": True,
    }  # fmt: skip
    assert launched.fields_on(32) == {"global_batch": 12}  # two data-parallel ranks of six samples
    assert set(launched.overrides) == {
        "model.tp_comm_overlap=false", "model.account_for_loss_in_pipeline_split=true", "model.cuda_graph_impl=local",
        "model.cuda_graph_scope=[full_iteration]", "mixed_precision.fp8_dot_product_attention=true",
    }  # fmt: skip
    assert "left out: USE_TE_OPS." in launched.notes[-1]


def test_frozen_weights_of_an_mlperf_submission_in_four_bits_are_in_what_they_compute_in(tmp_path: Path) -> None:
    (tmp_path / "config_common.sh").write_text("export LORA=1 MODEL_SIZE=405b FP4=True\n")
    (tmp_path / "config_x.sh").write_text(_MLPERF % (1, 1))
    assert "model.fp4_param=true" in read_launch(f"{tmp_path}/config_x.sh").overrides


@pytest.mark.parametrize(
    ("common", "words"),
    [
        ("", "no MODEL_SIZE, and its path names no benchmark"),
        ("export MODEL_SIZE=8b OVERWRITTEN_NUM_LAYERS=16", "OVERWRITTEN_NUM_LAYERS = 16"),
        ("export MODEL_SIZE=8b FP8=1 FP8_RECIPE=secret", "FP8_RECIPE secret"),
    ],
)
def test_variables_that_say_too_little(tmp_path: Path, common: str, words: str) -> None:
    (tmp_path / "config_common.sh").write_text(common + "\n")
    (tmp_path / "config_x.sh").write_text(_MLPERF % (1, "null"))
    with pytest.raises(InputError, match=words):
        read_launch(f"{tmp_path}/config_x.sh")


def test_an_mlperf_launch_without_a_pipeline_has_no_virtual_stages(tmp_path: Path) -> None:
    (tmp_path / "llama2_70b_lora").mkdir()
    (tmp_path / "llama2_70b_lora" / "config_x.sh").write_text(_MLPERF % (1, "null"))
    launched = read_launch(f"{tmp_path}/llama2_70b_lora/config_x.sh")
    assert (launched.model, launched.fields["virtual"]) == ("llama2-70b", 1)
    assert "peft=lora" in launched.overrides


_NEMO = """trainer:
  num_nodes: 4
  devices: 8
  precision: bf16-mixed
model:
  micro_batch_size: 2
  global_batch_size: 64
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 4
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: %s
  num_attention_heads: 32
  num_query_groups: 8
  hidden_dropout: 0.0
  attention_dropout: 0.0
  normalization: rmsnorm
  bias: false
  activation: fast-swiglu
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  sequence_parallel: true
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 3
  some_knob: 5
  optim:
    name: distributed_fused_adam
    overlap_grad_sync: true
"""


def test_a_file_of_nemo_is_arguments_of_megatron(tmp_path: Path) -> None:
    """What NeMo leaves off unless set (fused RoPE and weight gradients, overlaps) is off."""
    (tmp_path / "llama.yaml").write_text(_NEMO % 14336)
    launched = read_launch(f"{tmp_path}/llama.yaml model.tensor_model_parallel_size=4", "llama3-8b")
    assert launched.fields == {
        "sequence": 4096, "micro_batch": 2, "global_batch": 64, "tensor": 4, "pipeline": 2, "virtual": 4,
        "sequence_parallel": True, "data_style": "zero1", "overlap": True,
    }  # fmt: skip
    assert {
        "model.apply_rope_fusion=false", "model.gradient_accumulation_fusion=false", "model.tp_comm_overlap=false",
        "ddp.overlap_param_gather=false", "model.recompute_method=block", "model.recompute_num_layers=3",
    } <= set(launched.overrides)  # fmt: skip
    assert (launched.framework, launched.precision, launched.nodes, launched.gpus_per_node) == (
        "megatron",
        "bf16",
        4,
        8,
    )
    assert launched.notes[-1].endswith("left out: model.some_knob.")
    with pytest.raises(InputError, match="llama3-8b has hidden_size = 4096, and the launch 2048"):
        read_launch(f"{tmp_path}/llama.yaml model.hidden_size=2048", "llama3-8b")


@pytest.mark.parametrize(
    ("size", "added", "words"),
    [
        ("${multiply:4, ${.hidden_size}}", "", "ffn_hidden_size of llama.yaml is .*, computed from other fields"),
        ("14336", "  peft:\n    peft_scheme: lora\n", "trains adapters \\(lora\\)"),
    ],
)
def test_files_of_nemo_that_are_refused(tmp_path: Path, size: str, added: str, words: str) -> None:
    (tmp_path / "llama.yaml").write_text(_NEMO % size + added)
    with pytest.raises(InputError, match=words):
        read_launch(f"{tmp_path}/llama.yaml")


def test_an_activation_of_nemo_that_megatron_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "llama.yaml").write_text((_NEMO % 14336).replace("fast-swiglu", "reglu"))
    with pytest.raises(InputError, match="the activation reglu"):
        read_launch(f"{tmp_path}/llama.yaml", "llama3-8b")
