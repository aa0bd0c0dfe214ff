"""What `presim compose --from` refuses before anything is captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from presim.cli.main import cli
from presim.errors import InputError


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "MODEL"),
        (
            ["--from", "run.sh", "--framework", "torchtitan"],
            "a launch of megatron, which --framework torchtitan contradicts",
        ),
        (["--from", "run.sh", "--dtype", "float16"], "--dtype contradicts"),
        (["--from", "no.sh"], "no.sh"),
        (["--from", "'run.sh"], "cannot be split into words"),
        (["--from", "run.sh"], "8 GPUs are no multiple of tp x cp x pp = 16"),
        (["llama3-8b", "--from", "run.sh"], "model_type = llama, and the launch gpt2"),
    ],
)
def test_refusals(options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("presim.composition.frameworks.megatron.installed_versions", lambda: {"megatron-core": "1"})
    Path("run.sh").write_text(
        "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 4 --hidden-size 1024 "
        "--num-attention-heads 16 --seq-length 512 --micro-batch-size 1 --vocab-size 512 --bf16 "
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2\n"
    )
    ended = CliRunner().invoke(cli, ["compose", *options, "--gpu", "h100-sxm"])
    assert isinstance(ended.exception, InputError | SystemExit)
    assert words in f"{ended.output} {ended.exception}"


def test_batches_of_a_launch_follow_from_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two samples of three micro-batches on each of 64 ranks; an option precedes the file's own."""
    (tmp_path / "lf.yaml").write_text(
        "model_name_or_path: llama3-8b\nfinetuning_type: full\nbf16: true\ncutoff_len: 4096\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 3\n"
    )
    plans = []

    def record(model: str, plan: Any, named_fields: Any, options: Any, **program: Any) -> None:
        plans.append((model, plan, program["framework"], options.world_size))
        raise InputError("recorded")

    monkeypatch.setattr("presim.verbs.compose_plan.predict_plan", record)
    command = ["compose", "--from", f"{tmp_path}/lf.yaml", "--gpu", "h100-sxm", "--world-size", "64", "--seq", "2048"]
    assert str(CliRunner().invoke(cli, command).exception) == "recorded"
    ((model, plan, framework, world_size),) = plans
    assert (model, framework, world_size) == ("llama3-8b", "hf", 64)
    assert (plan.global_batch, plan.micro_batch, plan.sequence, plan.recompute) == (384, 2, 2048, "full")
