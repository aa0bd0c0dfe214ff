"""Which release of Megatron-Bridge ran mixtures of experts how."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.megatron_family import tuned, tuned_experts

ROW = {"id": "x", "framework": "Megatron-Bridge (Megatron-Core)", "model": "GPT OSS 120B", "precision": "MXFP8"}


def case(release: str, **cells: str) -> Case:
    return Case({**ROW, "framework_version": f"{release} NeMo Container", **cells})


@pytest.mark.parametrize(("release", "expected"), [("25.11", (25, 11)), ("26.02.01", (26, 2))])
def test_a_release_is_its_year_and_month(release: str, expected: tuple[int, int]) -> None:
    assert tuned_experts.release_of(case(release)) == expected
    assert tuned_experts.release_of(case(release, framework="NeMo")) == (0, 0)


def test_exchanges_came_to_hybridep_and_then_beside_other_work() -> None:
    """25.11: NCCL; 26.04: HybridEP; 26.06: HybridEP beside the products of another micro-batch."""
    old, hybrid, beside = (tuned_experts.exchange_fields(case(name), "gb200") for name in ("25.11", "26.04", "26.06"))
    assert old == {}
    assert hybrid["moe_flex_dispatcher_backend"] == "hybridep"
    assert "overlap_moe_expert_parallel_comm" not in hybrid
    assert beside == hybrid | {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": True}


def test_graphs_are_of_parts_and_then_of_the_iteration() -> None:
    """Qwen3 30B in MXFP8 on GB200 has its attention launched by the host, in bf16 not."""
    parts, all_parts = (
        tuned_experts.graphed_modules(case("26.04", model="Qwen3_30B_a3B", precision=precision), "gb200")
        for precision in ("MXFP8", "BF16")
    )
    assert "router" in parts
    assert "self_attention" not in parts
    assert {"self_attention", "SelfAttention", *parts} < set(all_parts)
    assert not tuned.launched_as_graphs(case("26.04", model="Qwen3_30B_a3B"), "qwen330ba3b", "gb200")
    assert tuned_experts.graphed_modules(case("26.06", model="Qwen3_30B_a3B"), "gb200") == ()
    assert tuned.launched_as_graphs(case("26.06", model="Qwen3_30B_a3B"), "qwen330ba3b", "gb200")


def test_a_hybrids_layers_of_mamba_are_graphs_everywhere_and_its_routers_but_on_hopper() -> None:
    blackwell = tuned_experts.graphed_modules(case("26.04", model="Nemotron_3_Nano"), "gb300")
    hopper = tuned_experts.graphed_modules(case("26.04", model="Nemotron_3_Nano", precision="FP8"), "h100-sxm")
    assert {"mixer", "self_attention", "router"} < set(blackwell)
    assert hopper == ("mixer",)


def test_without_drops_the_host_counted_until_the_routers_were_graphs() -> None:
    assert tuned_experts.counts_on_the_host(case("25.11"))
    assert not tuned_experts.counts_on_the_host(case("25.11", model="DeepSeekV3 (tokendrop)"))
    assert not tuned_experts.counts_on_the_host(case("25.11", model="LLAMA3_8B"))
    assert not tuned_experts.counts_on_the_host(case("26.02"))
    assert not tuned_experts.counts_on_the_host(case("25.11", framework="NeMo"))


def test_exchanges_overlap_in_pipelines_with_virtual_stages_only() -> None:
    """The schedule runs a layer of one virtual stage beside one of another."""
    qwen = {"model": "Qwen3_235B_a22B", "precision": "FP8", "pp": "8"}
    even, virtual = (
        tuned_experts.exchange_fields(case("26.04", **qwen, **more), "h100-sxm") for more in ({}, {"vp": "4"})
    )
    assert even == {}
    assert virtual["overlap_moe_expert_parallel_comm"] is True


def test_attention_is_in_fp8_where_the_iteration_of_a_large_mixture_is_one_graph() -> None:
    assert tuned_experts.attends_in_fp8(case("26.06"), "gb300")
    assert not tuned_experts.attends_in_fp8(case("26.04"), "gb300")
    assert not tuned_experts.attends_in_fp8(case("26.06", model="DeepSeekV3"), "gb200")


def test_the_latest_keep_what_they_have_memory_for() -> None:
    assert tuned_experts.keeps_all(case("26.08"), "gb200")
    assert not tuned_experts.keeps_all(case("26.04"), "gb200")
    assert not tuned_experts.keeps_all(case("26.08", precision="BF16"), "gb200")


def test_experts_became_one_kernel_in_mxfp8_on_blackwell() -> None:
    assert tuned_experts.fuses_experts(case("26.06"), "gb300")
    assert not tuned_experts.fuses_experts(case("26.04"), "gb300")
    assert not tuned_experts.fuses_experts(case("26.06", precision="BF16"), "gb300")
    assert not tuned_experts.fuses_experts(case("26.06", precision="FP8"), "h100-sxm")


@pytest.mark.parametrize(("ranks", "hybrid"), [("16", True), ("8", False)])
def test_experts_over_two_hosts_of_h100_exchange_by_host(ranks: str, hybrid: bool) -> None:
    found = tuned_experts.exchange_fields(case("26.04", model="Qwen3_30B_a3B", precision="FP8", ep=ranks), "h100-sxm")
    assert bool(found) is hybrid


@pytest.mark.parametrize(("ranks", "hybrid"), [("8", True), ("64", False)])
def test_experts_over_all_hosts_of_b300_exchange_by_nccl(ranks: str, hybrid: bool) -> None:
    found = tuned_experts.exchange_fields(case("26.02", precision="BF16", ep=ranks), "b300")
    assert bool(found) is hybrid


def test_gpt_oss_on_b300_is_in_mxfp8_what_it_is_in_bf16() -> None:
    """Its recipe has none of what GB200 and GB300 got in 26.06."""
    quantised, half = (case("26.06", precision=precision, ep="8") for precision in ("MXFP8", "BF16"))
    assert tuned_experts.exchange_fields(quantised, "b300") == tuned_experts.exchange_fields(half, "b300")
    assert tuned_experts.graphed_modules(quantised, "b300") == tuned_experts.graphed_modules(half, "b300") != ()
    assert not tuned_experts.fuses_experts(quantised, "b300")
    assert not tuned_experts.attends_in_fp8(quantised, "b300")


def test_kimis_routers_are_graphs_on_gb200_and_nothing_of_it_on_gb300() -> None:
    kimi = case("26.04", model="Kimi_K2")
    assert "router" in tuned_experts.graphed_modules(kimi, "gb200")
    assert "self_attention" not in tuned_experts.graphed_modules(kimi, "gb200")
    assert tuned_experts.graphed_modules(kimi, "gb300") == ()
    assert not tuned.launched_as_graphs(kimi, "kimik2", "gb300")


def test_deepseeks_experts_over_four_hosts_of_b200_exchange_by_deepep_under_graphs() -> None:
    spread, kept = (case("26.04", model="DeepSeekV3", ep=ranks, pp="8", vp="2") for ranks in ("32", "8"))
    fields = tuned_experts.exchange_fields(spread, "b200")
    assert fields["moe_flex_dispatcher_backend"] == "deepep"
    assert "moe_hybridep_num_sms" not in fields
    assert fields["overlap_moe_expert_parallel_comm"]
    assert {"router", "self_attention"} < set(tuned_experts.graphed_modules(spread, "b200"))
    assert tuned_experts.exchange_fields(kept, "b200")["moe_flex_dispatcher_backend"] == "hybridep"
    assert tuned_experts.graphed_modules(kept, "b200") == ()


def test_bridge_fuses_the_routers_of_all_mixtures_but_nemotrons() -> None:
    assert tuned_experts.fuses_router(case("25.09", model="Qwen3_30B_a3B"))
    assert tuned_experts.fuses_router(case("26.04", model="DeepSeekV3 (tokendrop)"))
    assert not tuned_experts.fuses_router(case("26.04", model="Nemotron_3_Nano"))
    assert not tuned_experts.fuses_router(case("26.04", framework="NeMo"))
