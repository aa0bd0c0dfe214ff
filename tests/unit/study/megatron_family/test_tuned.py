"""What published benchmarks leave to their recipes: recomputation, graphs, layouts of a pipeline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.studies.validation.cases import Case
from presim_study.megatron_family.tuned import (
    completed,
    is_tuned,
    launched_as_graphs,
    offloaded,
    pipeline_layout,
    recomputed,
    scales_by_current_values,
    splits_overlap,
)

BRIDGE = {"id": "x", "framework": "Megatron-Bridge (Megatron-Core)", "gpu": "H100", "model": "LLAMA3_70B"}


def test_layouts_are_those_that_megatron_bridge_publishes() -> None:
    assert pipeline_layout(61, 16, 1) == "Etttt|" + "tttt|" * 14 + "tmL"
    assert pipeline_layout(61, 32, 1) == "Et|" + "tt|" * 30 + "mL"
    assert pipeline_layout(61, 8, 0) == "Etttttttt|" + "tttttttt|" * 6 + "tttttL"


@given(layers=st.integers(2, 200), stages=st.integers(2, 64), predictors=st.integers(0, 2))
def test_every_layer_has_one_stage(layers: int, stages: int, predictors: int) -> None:
    parts = pipeline_layout(layers, stages, predictors).split("|")
    assert len(parts) == stages
    assert sum(part.count("t") for part in parts) == layers
    assert parts[0].startswith("E")
    assert parts[-1].endswith("m" * predictors + "L")


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "expected"),
    [
        ("gptoss120b", "h100-sxm", "BF16", ("layernorm", "moe_act")),
        ("gptoss120b", "gb200", "MXFP8", ()),
        ("deepseekv3", "gb300", "MXFP8", ("mla_up_proj",)),
        ("llama38b", "h100-sxm", "FP8", ()),
    ],
)
def test_what_is_computed_again_goes_by_model_gpu_and_format(
    model: str, gpu: str, precision: str, expected: tuple[str, ...]
) -> None:
    assert recomputed(model, gpu, precision) == expected


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "expected"),
    [
        ("llama38b", "gb200", "FP8-CS", True),
        ("llama38b", "h100-sxm", "FP8", False),
        ("llama370b", "gb200", "MXFP8", False),
        ("deepseekv3", "gb300", "MXFP8", True),
        ("qwen330ba3b", "gb200", "FP8-MX", True),
        ("qwen330ba3b", "h100-sxm", "FP8", False),
        ("gptoss120b", "gb200", "BF16", False),
    ],
)
def test_iterations_are_graphs_where_the_recipes_say_so(model: str, gpu: str, precision: str, expected: bool) -> None:
    assert launched_as_graphs(Case({**BRIDGE, "precision": precision}), model, gpu) is expected
    assert launched_as_graphs(Case({**BRIDGE, "source": "github:mlcommons/training_results_v5.1:x"}), model, gpu)


def test_activations_wait_on_the_host_and_exchanges_run_beside_products() -> None:
    assert offloaded("llama370b", "gb200", "FP8 current-scaling") == 40
    assert offloaded("llama370b", "h100-sxm", "FP8") == 0
    assert splits_overlap(Case({**BRIDGE, "tp": "4"}), experts=False)
    assert not splits_overlap(Case({**BRIDGE, "tp": "4"}), experts=True)
    assert not splits_overlap(Case({**BRIDGE, "tp": "1"}), experts=False)
    assert not splits_overlap(Case({**BRIDGE, "tp": "4", "precision": "NVFP4"}), experts=False)


def test_runs_with_adapters_are_graphs_where_sequences_are_split() -> None:
    case = Case({**BRIDGE, "model": "Llama2-70B [LoRA r16]", "source": "github:mlcommons/training_results_v5.1:x"})
    assert not launched_as_graphs(case, "llama270b", "b200")
    assert launched_as_graphs(Case({**case.row, "cp": "8"}), "llama270b", "b200")


def test_empty_cells_of_mlperf_follow_from_the_others() -> None:
    row = {**BRIDGE, "source": "github:mlcommons/training_results_v5.1:x", "global_batch": "36", "grad_accum": "1"}
    found = completed(Case({**row, "dp": "18"}))
    assert (found.text("precision"), found.text("micro_batch")) == ("FP8", "2")
    assert completed(Case({**row, "precision": "NVFP4", "micro_batch": "1"})).text("precision") == "NVFP4"
    assert completed(Case(row)).text("micro_batch") == ""
    assert completed(Case(BRIDGE)).text("precision") == ""


@pytest.mark.parametrize(
    ("release", "gpu", "ranks"),
    [("25.11", "B200 SXM", "64"), ("25.11", "H100 SXM 80GB", "8"), ("26.04", "B200 SXM", "8")],
)
def test_gpt_oss_on_b200_spread_its_experts_over_all_hosts_at_first(release: str, gpu: str, ranks: str) -> None:
    """The row of 25.11 has the experts of H100's row; its configuration and the next release have eight hosts."""
    row = {**BRIDGE, "model": "GPT OSS 120B", "gpu": gpu, "n_gpus": "64", "ep": "8"}
    assert completed(Case({**row, "framework_version": f"{release} NeMo Container"})).text("ep") == ranks


def test_a_row_of_two_set_ups_has_the_micro_batch_of_its_pipeline() -> None:
    """16 rounds of one sequence make a batch of 128 on 64 GPUs in eight parts; of two they do not."""
    row = {**BRIDGE, "gpu": "GB200", "n_gpus": "64", "tp": "2", "pp": "4", "global_batch": "128", "micro_batch": "2"}
    assert completed(Case({**row, "grad_accum": "16"})).text("micro_batch") == "1"
    assert completed(Case({**row, "grad_accum": "8"})).text("micro_batch") == "2"
    assert completed(Case(row)).text("micro_batch") == "2"
    assert completed(Case({**row, "grad_accum": "16", "model": "Qwen3_30B_a3B"})).text("micro_batch") == "2"
    assert completed(Case({**row, "grad_accum": "16", "framework": "NeMo AutoModel"})).text("micro_batch") == "2"


def test_fp8_of_mlperf_is_scaled_by_current_values_but_for_lora() -> None:
    row = {**BRIDGE, "framework": "NVIDIA Release 25.09", "source": "github:mlcommons/training_results_v5.1:x"}
    assert scales_by_current_values(Case(row))
    assert not scales_by_current_values(Case({**row, "model": "Llama2-70B [LoRA r16]"}))
    assert scales_by_current_values(Case(BRIDGE))


def test_mlperf_rows_are_tuned_whatever_their_framework_is_called() -> None:
    assert is_tuned(Case(BRIDGE))
    assert is_tuned(Case({**BRIDGE, "framework": "PyTorch NVIDIA Release 25.09"}))
    assert not is_tuned(Case({**BRIDGE, "framework": "Megatron-LM (mcore dev CI container)"}))
