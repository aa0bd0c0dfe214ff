"""What MLPerf's submissions leave to their configurations: split, number format, graphs, attention."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.megatron_family import mlperf

LORA = {
    "id": "x", "framework": "PyTorch", "model": "Llama2-70B [LoRA r16]", "gpu": "NVIDIA Blackwell GPU (B200-SXM-180GB)",
    "source": "github:mlcommons/training_results_v5.1:Dell/results/1xXE9780x8B200/llama2_70b_lora/result_*.txt",
    "n_gpus": "8", "global_batch": "8", "grad_accum": "1",
}  # fmt: skip
EIGHT = {**LORA, "model": "Llama3.1-8B [pretrain]", "global_batch": "16"}
ROUND = "github:mlcommons/training_results_v{}/results/x/"
BOTH = "FP4 or FP8 (both configs shipped)"


def completed(**cells: str) -> Case:
    return mlperf.completed(Case({**LORA, **cells}))


def test_the_names_of_configurations_say_the_split_where_they_agree() -> None:
    named = "config_GB300_128x4x1xtp2pp1cp4_8b.sh;config_GB300_128x4x72xtp2pp8cp2_cg.sh"
    row = {**EIGHT, "gpu": "NVIDIA Blackwell Ultra GPU (GB300)", "n_gpus": "512", "global_batch": "64"}
    found = mlperf.completed(Case({**row, "other": named})).row
    assert [found[name] for name in ("tp", "pp", "cp", "dp", "micro_batch")] == ["2", "1", "4", "64", "1"]


def test_a_configuration_of_another_gpu_or_batch_does_not_count() -> None:
    names = "config_GB200_2x4x2xtp1pp1cp2.sh;config_DGXB200_1x8x4xtp1pp1cp2.sh;config_MI300X_1x8x1.sh"
    assert mlperf.configurations(Case({**LORA, "other": names})) == []
    assert len(mlperf.configurations(Case({**LORA, "other": "config_DGXB200_1x8x1xtp1pp1cp1.sh"}))) == 1


def test_the_configuration_of_the_own_system_tells_which_format_ran() -> None:
    theirs = "config_DGXB200_1x8x1xtp1pp1cp1.sh;config_DGXB200_1x8x1xtp1pp1cp1_fp4.sh"
    assert completed(precision=BOTH, other=theirs).text("precision") == BOTH
    own = "config_1xXE9780x8B200_1x8x1xtp1pp1cp1.sh"
    assert completed(precision=BOTH, other=f"{theirs};{own}").text("precision") == "FP8"
    own = own.replace(".sh", "_fp4.sh")
    assert completed(precision=BOTH, other=f"{theirs};{own}").text("precision") == "NVFP4"


@pytest.mark.parametrize(
    ("gpu", "gpus", "batch", "rounds", "expected"),
    [
        ("H100-SXM5-80GB", "8", "8", "4", ("4", "1", "2")),
        ("H100-SXM5-80GB", "64", "8", "1", ("4", "2", "8")),
        ("H200-SXM5-141GB", "8", "8", "2", ("1", "2", "4")),
        ("H200-SXM5-141GB", "64", "16", "1", ("4", "1", "16")),
        ("B200", "64", "8", "1", ("1", "8", "8")),
        ("B200", "8", "8", "1", ("1", "1", "8")),
    ],
)
def test_replicas_split_layers_on_hopper_and_sequences_on_blackwell(
    gpu: str, gpus: str, batch: str, rounds: str, expected: tuple[str, str, str]
) -> None:
    found = completed(gpu=gpu, n_gpus=gpus, global_batch=batch, grad_accum=rounds).row
    assert (found["tp"], found["cp"], found["dp"]) == expected
    assert found["micro_batch"] == "1"


def test_what_does_not_follow_stays_empty() -> None:
    assert "tp" not in completed(global_batch="").row
    assert "tp" not in completed(global_batch="5").row
    large = {**EIGHT, "model": "Llama3.1-405B [pretrain]"}
    assert mlperf.completed(Case(large)).text("tp") == ""
    assert mlperf.completed(Case(EIGHT)).row["micro_batch"] == "2"
    other = Case({"id": "x", "source": "elsewhere"})
    assert mlperf.completed(other) is other


def test_lora_of_v5_exchanges_heads_where_sequences_are_split() -> None:
    assert mlperf.fields(completed(cp="8", precision="FP8")) == {"cp_comm_type": "a2a"}
    assert mlperf.fields(completed(cp="1", precision="NVFP4")) == {
        "fp4_param": True,
        "activation_func_fp8_input_store": True,
    }
    earlier = {"source": "github:mlcommons/training_results_v4.0:Dell/results/x/", "gpu": "H100"}
    assert mlperf.fields(completed(**earlier, cp="2", tp="4")) == {"disable_parameter_transpose_cache": True}
    assert mlperf.fields(Case(EIGHT)) == {}


@pytest.mark.parametrize(
    ("cells", "fp8", "graphs"),
    [
        ({"cp": "1"}, True, False),
        ({"cp": "8"}, True, True),
        ({"gpu": "H100", "cp": "2", "tp": "4"}, False, True),
        ({"gpu": "H200", "cp": "2", "tp": "1"}, False, False),
        ({"gpu": "H100", "cp": "2", "tp": "4", "source": ROUND.format("4.0:HPE")}, False, False),
        ({"gpu": "L40S", "cp": "2", "source": ROUND.format("4.0:NVIDIA")}, False, False),
        ({"model": "Llama3.1-8B"}, False, True),
        ({"model": "Llama3.1-8B", "source": ROUND.format("5.1:Cisco")}, False, False),
        ({"model": "GPT-3", "source": ROUND.format("4.0:NVIDIA"), "other": "config_x_cg.sh"}, False, True),
        ({"model": "GPT-3", "source": ROUND.format("4.0:NVIDIA"), "other": "config_x.sh"}, False, False),
    ],
)  # fmt: skip
def test_attention_in_fp8_and_graphs_are_those_of_the_rounds_configurations(
    cells: dict[str, str], fp8: bool, graphs: bool
) -> None:
    case = Case({**LORA, **cells})
    assert (mlperf.attends_in_fp8(case), mlperf.launched_as_graphs(case)) == (fp8, graphs)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"gpu": "L40S", "source": ROUND.format("4.0:NVIDIA")}, True),
        ({"gpu": "H100", "source": ROUND.format("5.1:Cisco")}, True),
        ({"gpu": "H200"}, True),
        ({"gpu": "H100"}, False),
        ({"gpu": "B200"}, False),
        ({"gpu": "H200", "model": "Llama3.1-8B"}, False),
    ],
)
def test_frozen_weights_were_kept_one_way_until_v4_1_and_where_there_is_no_room(
    cells: dict[str, str], expected: bool
) -> None:
    assert mlperf.drops_transposes(Case({**LORA, **cells})) is expected


def test_gpus_that_meet_by_pci_express_overlap_no_exchanges() -> None:
    assert mlperf.shares_no_links(Case({**LORA, "gpu": "NVIDIA L40S"}))
    assert not mlperf.shares_no_links(Case(LORA))


def test_which_format_ran_is_open_where_a_round_has_both_and_a_row_names_none() -> None:
    assert completed().text("precision") == "FP8"
    assert mlperf.completed(Case(EIGHT)).text("precision") == "FP8 or NVFP4"
    assert mlperf.completed(Case({**EIGHT, "gpu": "H100"})).text("precision") == "FP8"
    named = {**EIGHT, "other": "config_DGXB200_1x8x2xtp1pp1cp1_8b.sh"}
    assert mlperf.completed(Case(named)).text("precision") == "FP8"
