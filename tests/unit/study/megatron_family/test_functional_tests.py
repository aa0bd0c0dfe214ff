"""What Megatron-LM's own tests run on, where a row leaves it out."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.megatron_family.flags import flags_of
from presim_study.megatron_family.functional_tests import (
    arguments,
    between_steps_ns,
    completed,
    graphed_modules,
    input_s,
    is_one,
    on_its_hosts,
)
from presim_study.plan import cluster_of

FOLDER = "github:NVIDIA/Megatron-LM:tests/functional_tests/test_cases/gpt/gpt3_mcore/"
ROW = {"id": "x", "framework": "Megatron-LM", "model": "gpt/gpt3_mcore", "source": FOLDER + "golden_values_lts.json"}


@pytest.mark.parametrize(
    ("change", "gpu", "gpus"),
    [
        ({}, "A100 (DGX A100)", "8"),
        ({"gpu": "H100 (DGX H100)"}, "H100 (DGX H100)", "8"),
        ({"gpu": "H100 (DGX H100)", "n_gpus": "1"}, "H100 (DGX H100)", "1"),
        ({"gpu": "GB200 (DGX GB200)"}, "GB200 (DGX GB200)", ""),
        ({"source": FOLDER + "golden_values_dev_elsewhere.json"}, "", "8"),
        ({"model": "mixtral/mixtral_8x7b_release"}, "", ""),
        ({"source": "github:somebody/else.json"}, "", ""),
    ],
)
def test_empty_cells_are_the_defaults_of_the_tests_recipes(change: dict[str, str], gpu: str, gpus: str) -> None:
    case = completed(Case({**ROW, **change}))
    assert (case.text("gpu"), case.text("n_gpus")) == (gpu, gpus)


_TE = "transformer-impl=transformer_engine;deterministic-mode=True"


@pytest.mark.parametrize(
    ("file", "other", "unfused"),
    [
        ("golden_values_lts_dgx_a100.json", _TE, True),
        ("golden_values_lts_dgxa100_dracooci.json", _TE, True),
        ("golden_values_lts_dgxa100_dracooci-ord.json", _TE, True),
        ("golden_values_dev_dgxa100_dracooci.json", _TE, False),
        ("golden_values_lts.json", _TE, False),
        ("golden_values_lts_dgxa100_dracooci.json", "transformer-impl=transformer_engine", False),
        ("golden_values_lts_dgxa100_dracooci.json", f"{_TE};attention-backend=flash", False),
    ],
)
def test_what_was_old_has_no_fused_attention_that_is_deterministic(file: str, other: str, unfused: bool) -> None:
    case = completed(Case({**ROW, "source": FOLDER + file, "other": other}))
    assert (flags_of(case).get("attention-backend") == "unfused") == unfused


def test_what_the_recipes_kept_ran_in_the_newer_container() -> None:
    row = {**ROW, "source": FOLDER + "golden_values_lts_dgx_a100.json", "other": _TE}
    kept = completed(Case({**row, "note": "recipe tests/test_utils/recipes/h100/gpt.yaml"}))
    left = completed(Case({**row, "note": "recipe tests/test_utils/recipes/gb200/gpt.yaml"}))
    assert [flags_of(case).get("attention-backend") for case in (kept, left)] == [None, "unfused"]


_HASHES = "check-weight-hash-across-dp-replicas-interval"


@pytest.mark.parametrize(
    ("change", "option", "value"),
    [
        ({"model": "gpt/gpt3_defer_embedding_wgrad_compute_1node"}, "wgrad-deferral-limit", "2"),
        ({"model": "gpt/gpt3_mcore_tp2_pp2_uninstall_te"}, "no-masked-softmax-fusion", "True"),
        ({"model": "nemotron/nemotron3_5_lightning_nightly_tp1"}, "grad-reduce-in-bf16", "True"),
        ({"model": "nemotron/nemotron3_5_lightning_nightly_tp1"}, "moe-flex-dispatcher-backend", "hybridep"),
        ({"cp": "2"}, "hidden-dropout", "0.0"),
        ({"cp": "2", "other": "deterministic-mode=True"}, "hidden-dropout", None),
        ({"cp": "2", "other": "hidden-dropout=0.5"}, "hidden-dropout", "0.5"),
        ({"source": "github:somebody/else.json", "cp": "2"}, "hidden-dropout", None),
        ({"model": "moe/gpt3_moe_mcore_te_ep8_resume_torch_dist_muon"}, _HASHES, "1"),
        ({"model": "moe/gpt3_moe_mcore_te_ep8_resume_torch_dist_dist_muon"}, _HASHES, None),
    ],
)
def test_options_that_tables_leave_out_are_those_of_the_tests(
    change: dict[str, str], option: str, value: str | None
) -> None:
    assert flags_of(completed(Case({**ROW, **change}))).get(option) == value


@pytest.mark.parametrize(
    ("layout", "pp", "vp"), [("Et*3|(tt|)*6L", "2", "4"), ("Et*2|(tt|)*5t|tmL", "4", "2"), ("Et*4|t*4L", "2", "1")]
)
def test_a_layout_says_how_many_virtual_stages_there_are(layout: str, pp: str, vp: str) -> None:
    case = completed(Case({**ROW, "pp": pp, "other": f"pipeline-model-parallel-layout={layout}"}))
    assert case.text("vp") == vp


@pytest.mark.parametrize(
    ("gpu", "other", "expected"),
    [
        ("H100 (DGX H100)", "", ()),
        ("GB200 (DGX GB200)", "", ("--workspaces", ":4096:2:16:8")),
        ("GB200 (DGX GB200)", "deterministic-mode=True", ()),
        ("A100 (DGX A100)", "CUBLAS_WORKSPACE_CONFIG=:4096:8", ("--workspaces", ":4096:8")),
        ("H100 (DGX H100)", f"deterministic-mode=True;{_HASHES}=1", ("--hash-weights",)),
        ("H100 (DGX H100)", f"deterministic-mode=True;{_HASHES}=10", ()),
    ],
)
def test_workspaces_and_hashes_are_those_of_the_test(gpu: str, other: str, expected: tuple[str, ...]) -> None:
    assert arguments(Case({**ROW, "gpu": gpu, "other": other})) == expected


@pytest.mark.parametrize(
    ("change", "one"),
    [
        ({"step_time_s": "0.1"}, True),
        ({"step_time_s": ""}, True),
        ({"step_time_s": "0.1", "source": "github:somebody/else.json"}, False),
    ],
)
def test_a_tests_rows_run_with_what_it_logs_whatever_was_measured(change: dict[str, str], one: bool) -> None:
    assert is_one(Case({**ROW, **change})) == one


def test_their_steps_and_no_others_take_what_the_recipe_has_not() -> None:
    assert between_steps_ns(Case(ROW)) > 0
    assert between_steps_ns(Case({**ROW, "source": "github:somebody/else.json"})) == 0


@pytest.mark.parametrize(("gpu", "differs"), [("H100 (DGX H100)", True), ("A100 (DGX A100)", False), ("B200", False)])
def test_hosts_of_tests_are_their_own_and_those_of_other_runs_the_nodes(gpu: str, differs: bool) -> None:
    row = {**ROW, "gpu": gpu, "n_gpus": "8"}
    cluster = cluster_of(Case(row))
    assert (on_its_hosts(Case(row), cluster).node.host_factor != cluster.node.host_factor) is differs
    assert on_its_hosts(Case({**row, "source": "github:somebody/else.json"}), cluster) == cluster


def test_on_one_node_of_githubs_machines_each_sequence_is_waited_for() -> None:
    row = {**ROW, "model": "gpt/gpt3_mcore_te_tp2_pp2_1node", "micro_batch": "4"}
    assert input_s(Case(row), 8) == 4 * input_s(Case(row), 2) == 2 * input_s(Case({**row, "micro_batch": "2"}), 8) > 0
    assert input_s(Case({**ROW, "micro_batch": "4"}), 8) == 0


@pytest.mark.parametrize(
    ("model", "modules"),
    [
        ("moe/gpt3_mcore_te_tp2_pp2_ep4_etp1_resume_torch_dist_attn_cudagraph", ("input_layernorm", "self_attention")),
        (
            "moe/gpt3_moe_mcore_te_tp4_ep2_etp2_pp2_scoped_cudagraph_1node",
            (
                *("input_layernorm", "self_attention", "mlp.linear_fc1", "mlp.linear_fc2"),
                *("pre_mlp_layernorm", "router", "shared_experts"),
            ),
        ),
        ("gpt/gpt3_mcore", ()),
    ],
)
def test_the_name_of_a_test_says_which_parts_of_layers_were_graphs(model: str, modules: tuple[str, ...]) -> None:
    assert graphed_modules(completed(Case({**ROW, "model": model}))) == modules
