"""accelerate's options and config files, and the variables that Accelerator reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.launchers.accelerate import read_accelerate
from presim.capture.launchers.launch import Shape, Worker
from presim.errors import InputError

WORKER = Worker(rank=9, world_size=16, per_node=8, port=29400)
CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
machine_rank: 0
use_cpu: false
debug: false
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_reshard_after_forward: true
  fsdp_offload_params: false
dynamo_config:
  dynamo_backend: INDUCTOR
"""


@pytest.fixture(autouse=True)
def _no_saved_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def variables(*words: str, worker: Worker = WORKER) -> dict[str, str]:
    return read_accelerate([*words, "train.py"]).variables_for(worker)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fsdp.yaml"
    path.write_text(CONFIG)
    return path


def test_a_config_file_sets_the_shape_and_the_settings(config: Path) -> None:
    launch = read_accelerate(["--config_file", str(config), "train.py"])
    assert launch.shape == Shape(2, 8, 16)
    wanted = {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_USE_ORIG_PARAMS": "true",
        "RANK": "9",
    }
    found = launch.variables_for(WORKER)
    assert {name: found.get(name) for name in wanted} == wanted


def test_the_command_overrides_its_config_file(config: Path) -> None:
    found = variables("--config_file", str(config), "--mixed_precision", "fp16", "--fsdp_version", "1")
    assert (found["ACCELERATE_MIXED_PRECISION"], found["FSDP_VERSION"]) == ("fp16", "1")
    assert "ACCELERATE_USE_FSDP" not in variables("--config_file", str(config), "--multi_gpu")


def test_the_config_that_accelerate_saved_is_found(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hf" / "accelerate"
    folder.mkdir(parents=True)
    config.rename(folder / "default_config.yaml")
    assert read_accelerate(["train.py"]).shape == Shape(2, 8, 16)


def test_deepspeed_settings_reach_the_accelerator() -> None:
    found = variables("--use_deepspeed", "--zero_stage", "3", "--offload_optimizer_device", "CPU")
    assert found["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert found["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"
    assert found["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"] == "cpu"
    assert found["TORCHELASTIC_RUN_ID"]  # on one machine torchrun starts the processes
    several = variables("--use_deepspeed", "--num_machines", "2", "--num_processes", "16")
    assert (several["CROSS_RANK"], "TORCHELASTIC_RUN_ID" in several) == ("1", False)


def test_parallelism_and_megatron_settings_have_their_prefixes() -> None:
    found = variables(
        "--use_parallelism_config", "--parallelism_config_tp_size", "4", "--parallelism-config-cp-size", "2"
    )
    assert (found["PARALLELISM_CONFIG_TP_SIZE"], found["PARALLELISM_CONFIG_CP_COMM_STRATEGY"]) == ("4", "allgather")
    assert variables("--use_megatron_lm", "--megatron_lm_tp_degree", "2")["MEGATRON_LM_TP_DEGREE"] == "2"


def test_one_process_is_launched_without_torchrun() -> None:
    found = variables(worker=Worker(0, 1, 1, 29400))
    assert (found["ACCELERATE_USE_CPU"], "RANK" in found) == ("False", False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("num_processes: 8\n", "has no distributed_type; write it with `accelerate config`"),
        ("distributed_type: TPU_POD\n", "distributed_type TPU_POD is not one of"),
        ("a: [", "is not valid YAML or JSON"),
        (
            "distributed_type: MULTI_GPU\ncompute_environment: AMAZON_SAGEMAKER\n",
            "AMAZON_SAGEMAKER is not supported",
        ),
        ("distributed_type: MULTI_GPU\nnum_processes: many\n", "--num_processes many must be a whole number"),
    ],
)
def test_a_bad_config_file_is_refused_with_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_accelerate(["--config_file", str(path), "train.py"])
    assert sentence in str(caught.value)


def test_a_missing_config_file_is_named() -> None:
    with pytest.raises(
        InputError, match=r"^cannot read nowhere\.yaml: No such file or directory; give accelerate launch a config file"
    ):
        read_accelerate(["--config_file", "nowhere.yaml", "train.py"])


def test_unknown_keys_are_named(config: Path) -> None:
    config.write_text(CONFIG + "frobnicate: 3\n")
    (note,) = read_accelerate(["--config_file", str(config), "train.py"]).notes
    assert note == f"presim ignored unknown settings in {config}: frobnicate."


def test_a_slip_of_a_key_is_refused(config: Path) -> None:
    config.write_text(CONFIG + "mixed_precison: bf16\n")
    with pytest.raises(InputError, match=r"has no setting mixed_precison; did you mean mixed_precision\?"):
        read_accelerate(["--config_file", str(config), "train.py"])
