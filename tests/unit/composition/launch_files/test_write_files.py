"""Launch files match the plan; a framework that cannot express it names the field."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from presim.composition.launch_files.hugging_face import accelerate, deepspeed
from presim.composition.launch_files.launch_job import LaunchJob
from presim.composition.launch_files.megatron_lm import files as megatron
from presim.composition.launch_files.shapes import shapes
from presim.composition.launch_files.torchtitan import files as torchtitan
from presim.composition.launch_files.write_files import write_all
from presim.composition.plan import Plan
from presim.errors import InputError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 2048,
}


def job(plan: Plan, **config: Any) -> LaunchJob:
    return LaunchJob(config={**LLAMA, **config}, plan=plan, nodes=2, gpus_per_node=4)


def options(text: str) -> dict[str, str]:
    """The options of a file with one option per line."""
    return {words[0]: " ".join(words[1:]) for words in map(shlex.split, text.splitlines())}


def test_megatron_s_arguments_match_the_plan() -> None:
    plan = Plan(
        sequence=512,
        micro_batch=2,
        tensor=2,
        sequence_parallel=True,
        pipeline=2,
        virtual=2,
        global_batch=32,
        data_style="zero1",
        recompute="full",
        clip=False,
    )
    said = options(megatron(job(plan)).files["megatron.args"])
    assert said["--num-query-groups"] == "4"
    assert said["--tensor-model-parallel-size"] == said["--pipeline-model-parallel-size"] == "2"
    assert said["--num-virtual-stages-per-pipeline-rank"] == "2"
    assert (said["--micro-batch-size"], said["--global-batch-size"]) == ("2", "32")
    assert said["--clip-grad"] == "0.0"
    assert said["--recompute-granularity"] == "full"
    assert {"--sequence-parallel", "--use-distributed-optimizer", "--overlap-grad-reduce"} <= set(said)


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        ("all-to-all", {"--moe-token-dispatcher-type": "alltoall"}),
        ("all-gather", {"--moe-token-dispatcher-type": "allgather"}),
        ("deepep", {"--moe-token-dispatcher-type": "flex", "--moe-flex-dispatcher-backend": "deepep"}),
    ],
)
def test_megatron_s_dispatcher_is_the_plan_s_exchange(exchange: Any, words: dict[str, str]) -> None:
    plan = Plan(sequence=512, data_style="zero1", expert=4, expert_exchange=exchange, expert_capacity=1.25)
    found = megatron(job(plan, num_local_experts=8, model_type="mixtral"))
    said = options(found.files["megatron.args"])
    assert said.items() >= words.items()
    assert (said["--expert-model-parallel-size"], said["--moe-expert-capacity-factor"]) == ("4", "1.25")
    assert "--moe-pad-expert-input-to-capacity" not in said


def test_frameworks_without_expert_parallelism_are_named(tmp_path: Path) -> None:
    written = write_all(job(Plan(sequence=512, expert=4), num_local_experts=8, model_type="mixtral"), tmp_path)
    for name in ("accelerate", "deepspeed"):
        assert f"No files for {name}: {name} cannot express this plan's expert = 4, only 1." in written.notes


def test_megatron_s_program_accepts_every_argument() -> None:
    plan = Plan(
        sequence=512, data_style="zero1", expert=4, expert_exchange="deepep", expert_capacity=1.25, pad_experts=True
    )
    found = megatron(job(plan, num_local_experts=8, model_type="mixtral"))
    known = set(re.findall(r"[a-z][a-z0-9-]+", found.files["train_megatron.py"]))
    assert {word.removeprefix("--") for word in found.command if word.startswith("--") and word != "--"} <= known | {
        "nnodes",
        "nproc-per-node",
        "rdzv-backend",
        "rdzv-endpoint",
    }


def test_torchtitan_s_configuration_has_the_plan_s_degrees_and_stages() -> None:
    plan = Plan(sequence=512, tensor=2, pipeline=2, global_batch=16, stages=(1, 3))
    text = torchtitan(job(plan)).files["plan_config.py"]
    said = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    parallelism = said["PARALLELISM"]
    assert parallelism["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2", "layers.3", "norm", "lm_head"],
    ]
    assert parallelism["data_parallel_shard_degree"] == 2
    assert said["TRAINING"]["local_batch_size"] == 8  # all micro-batches of a rank
    assert (said["RECOMPUTE"], said["CONVERTERS"], said["COMPILE"]) == ("none", [], False)


def test_an_unsupported_plan_is_refused_with_one_sentence(tmp_path: Path) -> None:
    written = write_all(job(Plan(sequence=512, tensor=2)), tmp_path)
    assert list(written.folders) == ["torchtitan"]
    assert (
        "No files for megatron: Megatron-LM cannot express this plan's data_style = 'fsdp2', only zero1."
        in written.notes
    )
    assert "No files for deepspeed: deepspeed cannot express this plan's tensor = 2, only 1." in written.notes


@pytest.mark.parametrize(
    ("write", "style"), [(megatron, "zero1"), (torchtitan, "fsdp2"), (accelerate, "fsdp2"), (deepspeed, "fsdp2")]
)
def test_a_field_that_no_file_has_is_not_left_out_in_silence(write: Any, style: Any) -> None:
    plan = Plan(sequence=512, global_batch=16, data_style=style, attention="flex" if write is torchtitan else "auto")
    assert write(job(plan)).command
    with pytest.raises(InputError, match=r"cannot express this plan's activation_budget = 0\.5, only 1\.0"):
        write(job(msgspec.structs.replace(plan, activation_budget=0.5)))


@pytest.mark.parametrize("write", [accelerate, deepspeed])
def test_units_of_torchtitan_are_not_those_of_others(write: Any) -> None:
    with pytest.raises(InputError, match="cannot express this plan's separate_ends = True"):
        write(job(Plan(sequence=512, global_batch=16, separate_ends=True)))


def test_megatron_refuses_unequal_stages() -> None:
    with pytest.raises(InputError, match=r"this plan's stages of 1, 3 blocks: its stages are equal, but 4 % 2 = 0"):
        megatron(job(Plan(sequence=512, pipeline=2, stages=(1, 3), global_batch=16, data_style="zero1")))


def test_deepspeed_and_accelerate_have_the_model_and_the_batch(tmp_path: Path) -> None:
    written = write_all(job(Plan(sequence=512, micro_batch=2, global_batch=64, recompute="full")), tmp_path)
    settings = json.loads((written.folders["deepspeed"] / "ds_config.json").read_text())
    assert settings["zero_optimization"]["stage"] == 3
    batches = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    assert [settings[name] for name in batches] == [2, 4, 64]
    yaml = (written.folders["accelerate"] / "accelerate.yaml").read_text()
    assert "  fsdp_activation_checkpointing: true\n" in yaml
    assert json.loads((written.folders["accelerate"] / "model" / "config.json").read_text()) == LLAMA
    launch = (written.folders["accelerate"] / "launch.sh").read_text()
    assert '--main_process_ip "$MASTER_ADDR"' in launch


def test_an_unsupported_model_family_is_named() -> None:
    with pytest.raises(InputError, match=r"launch files support llama, mistral, .* not models of type gpt2"):
        shapes({**LLAMA, "model_type": "gpt2"})


def test_offloading_is_written_in_the_words_of_megatron_and_deepspeed() -> None:
    plan = Plan(sequence=512, data_style="zero1", offload_activations=3, offload_optimizer="cpu")
    said = options(megatron(job(plan)).files["megatron.args"])
    assert said["--cpu-offloading-num-layers"] == "3"
    assert said["--optimizer-offload-fraction"] == "1.0"
    assert {"--optimizer-cpu-offload", "--use-precision-aware-optimizer", "--overlap-cpu-optimizer-d2h-h2d"} <= set(
        said
    )
    settings = json.loads(deepspeed(job(Plan(sequence=512, offload_optimizer="cpu"))).files["ds_config.json"])
    assert settings["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    settings = json.loads(deepspeed(job(Plan(sequence=512, offload_optimizer="states"))).files["ds_config.json"])
    assert settings["compile"] == {"deepcompile": True, "offload_opt_states": True}


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"recompute": "full"}, "Megatron-LM offloads activations without recomputation only, not with full"),
        ({"pipeline": 2, "global_batch": 16}, "without a pipeline only, not with pipeline = 2"),
        ({"offload_activations": 4}, "Megatron-LM offloads at most 3 of 4 layers, not 4"),
    ],
)
def test_megatron_refuses_what_it_cannot_offload(plan: dict[str, Any], words: str) -> None:
    known: dict[str, Any] = {"sequence": 512, "data_style": "zero1", "offload_activations": 2}
    with pytest.raises(InputError, match=words):
        megatron(job(Plan(**{**known, **plan})))


def test_quantised_and_sparse_layers_are_written_where_a_framework_has_them(tmp_path: Path) -> None:
    written = write_all(job(Plan(sequence=512, passes=("int8",))), tmp_path)
    assert list(written.folders) == ["accelerate"]
    assert written.commands["accelerate"][-2:] == ["--layers", "int8"]
    assert "No files for torchtitan: torchtitan cannot express this plan's pass int8; accelerate can." in written.notes
    assert accelerate(job(Plan(sequence=512, passes=("sparse24",)))).command[-1] == "sparse24"
    text = torchtitan(job(Plan(sequence=512, passes=("fp8-row", "recompute-selective")))).files["plan_config.py"]
    assert "CONVERTERS = ['Float8LinearConverter']" in text
    assert "RECOMPUTE = 'selective'" in text
    said = options(megatron(job(Plan(sequence=512, data_style="zero1", passes=("nvfp4",)))).files["megatron.args"])
    assert (said["--fp4-format"], said["--fp4-recipe"]) == ("e2m1", "nvfp4")


def test_a_pass_that_no_framework_trains_with_is_named() -> None:
    with pytest.raises(InputError, match=r"torchtitan cannot train with w4a16, a format of inference; serve it"):
        torchtitan(job(Plan(sequence=512, passes=("w4a16",))))
    with pytest.raises(InputError, match="pass my:own, and neither can the other frameworks"):
        torchtitan(job(Plan(sequence=512, passes=("my:own",))))


def test_dualpipev_is_written_for_torchtitan_only(tmp_path: Path) -> None:
    plan = Plan(sequence=512, pipeline=2, virtual=2, schedule="dualpipev", global_batch=16)
    written = write_all(job(plan), tmp_path)
    assert list(written.folders) == ["torchtitan"]
    text = (written.folders["torchtitan"] / "plan_config.py").read_text()
    assert "'pipeline_parallel_schedule': 'DualPipeV'" in text
    assert any("this plan's data_style = 'fsdp2', only zero1" in note for note in written.notes)


def test_accelerate_runs_ddp_without_fsdp_and_recomputes_by_the_model() -> None:
    files = accelerate(job(Plan(sequence=512, data_style="ddp", recompute="full")))
    assert "distributed_type: MULTI_GPU" in files.files["accelerate.yaml"]
    assert "fsdp" not in files.files["accelerate.yaml"]
    assert files.command[-1] == "--recompute"
    assert "casts fp32 parameters" in files.notes[0]
    assert "--recompute" not in accelerate(job(Plan(sequence=512, recompute="full"))).command
