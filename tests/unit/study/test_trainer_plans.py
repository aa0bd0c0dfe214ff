"""Published rows of trainers become plans of `presim compose --framework`, or have a reason why not."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.trainer_plans import run_of

MPT = {
    "id": "a",
    "framework": "llm-foundry/Composer FSDP1",
    "model": "MPT-7b",
    "n_layers": "32",
    "hidden": "4096",
    "ffn": "16384",
    "n_heads": "32",
    "vocab": "50368",
    "n_gpus": "16",
    "precision": "amp_bf16",
    "seq_len": "2048",
    "micro_batch": "6",
    "global_batch": "192",
    "sharding": "FSDP SHARD_GRAD_OP",
    "act_ckpt": "none",
    "other": "attn_impl=flash/triton",
}
TITAN = {
    "id": "b",
    "framework": "torchtitan",
    "model": "Llama3.1-8B",
    "n_gpus": "64",
    "tp": "8",
    "precision": "float8 tensorwise",
    "seq_len": "8192",
    "micro_batch": "12",
    "global_batch": "96",
    "act_ckpt": "selective per op",
    "compile": "True",
    "other": "async TP",
}


def test_mpt_is_gpt_2_with_the_row_s_sizes_sharding_and_sums_of_gradients() -> None:
    run = run_of(Case(MPT))
    assert isinstance(run.model, dict)
    assert (run.framework, run.model["n_layer"], run.model["activation_function"]) == ("hf", 32, "gelu")
    assert (run.plan.reshard, run.plan.attention, run.arguments) == (False, "flash", ("--sync_each_batch",))
    assert run_of(Case({**MPT, "global_batch": "96"})).arguments == ()


def test_torchtitan_s_rows_have_its_passes_and_options() -> None:
    run = run_of(Case(TITAN))
    assert (run.framework, run.model, run.plan.tensor) == ("torchtitan", "llama3-8b", 8)
    assert run.plan.passes == ("fp8-tensor", "fuse-pointwise", "recompute-selective")
    assert run.arguments == ("--compile.enable_async_tensor_parallel",)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**MPT, "precision": "amp_fp8"}, "precision: FP8"),
        ({**MPT, "framework": "litgpt", "model": "Llama 2 7 B [adapter]"}, "adapters: litgpt's own"),
        ({**TITAN, "framework": "NeMo AutoModel (PyTorch FSDP2)", "ep": "8"}, "experts: Transformer Engine's"),
        ({**TITAN, "model": "other"}, "model: no named model other"),
        ({**MPT, "framework": "JAX"}, "framework: of another kind"),
    ],
)
def test_what_no_framework_here_has_is_named(row: dict[str, str], words: str) -> None:
    with pytest.raises(CannotBuildError, match=words):
        run_of(Case(row))
