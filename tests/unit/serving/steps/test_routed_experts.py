"""Experts of a layer: how many are in use, what a call takes, and whose constants stand in for what nobody measured."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.hardware import catalogue
from presim.serving.serving_plan import WEIGHT_BYTES
from presim.serving.steps import routed_experts
from presim.serving.steps.routed_experts import Routed

DEEPSEEK = Routed(tokens=64, hidden=7168, width=2048, top_k=8, count=256, ranks=8, weights="fp8-block")


def test_experts_in_use_are_those_that_any_token_chose() -> None:
    """One token uses its own; many use all; a rank has its part of them."""
    assert routed_experts.busy(dataclasses.replace(DEEPSEEK, tokens=1, ranks=1)) == pytest.approx(8)
    assert routed_experts.busy(dataclasses.replace(DEEPSEEK, tokens=1)) == pytest.approx(1)
    assert routed_experts.busy(dataclasses.replace(DEEPSEEK, tokens=4096)) == pytest.approx(32)
    assert routed_experts.busy(DEEPSEEK) == pytest.approx(32 * (1 - (1 - 8 / 256) ** 64))


@given(st.integers(1, 8192), st.sampled_from(["vllm", "sglang", "trtllm"]), st.sampled_from(["bf16", "fp8", "fp4"]))
def test_more_tokens_never_take_less(tokens: int, engine: str, weights: str) -> None:
    gpu = catalogue.gpu("b200")
    one = dataclasses.replace(DEEPSEEK, tokens=tokens, weights=weights)
    assert (
        routed_experts.price(one, gpu, engine)[0]
        <= routed_experts.price(dataclasses.replace(one, tokens=2 * tokens), gpu, engine)[0]
    )


def test_few_tokens_read_the_weights_of_the_experts_in_use() -> None:
    """Never faster than the memory's peak."""
    gpu = catalogue.gpu("h200")
    work = dataclasses.replace(DEEPSEEK, tokens=32)
    read = (
        routed_experts.busy(work, routed_experts.constants_of("hopper", "sglang", "fp8-block").spread) * 3 * 7168 * 2048
    )
    assert routed_experts.price(work, gpu, "sglang")[0] > read / gpu.memory_bytes_per_s * 1e9


@pytest.mark.parametrize("gpu", ["a100-80gb-sxm", "h100-sxm", "b200", "l40s", "mi300x", "rtx-5090", "v100-32gb-sxm"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_every_gpu_engine_and_type_has_a_price(gpu: str, engine: str) -> None:
    """Where nobody measured a kernel, another engine's or another generation's stands in."""
    found = catalogue.gpu(gpu)
    for weights in WEIGHT_BYTES:
        work = dataclasses.replace(DEEPSEEK, weights=routed_experts.kind_of(weights, found))
        ns, width = routed_experts.price(work, found, engine)
        assert 1e3 < ns < 1e9
        assert 0 < width < 1.5


def test_four_bits_meet_sixteen_where_tensor_cores_take_no_four() -> None:
    assert routed_experts.kind_of("fp4", catalogue.gpu("h100-sxm")) == "mxfp4-16"
    assert routed_experts.kind_of("mxfp4", catalogue.gpu("b200")) == "mxfp4-8"
    assert routed_experts.kind_of("fp4", catalogue.gpu("b200")) == "fp4"


def test_constants_are_held_out_within_a_third() -> None:
    """Each table says how far it is off on shapes that its constants have not seen."""
    table = routed_experts._table()
    assert {"ampere", "ada", "hopper", "blackwell"} <= set(table)
    every = [kind for engines in table.values() for kinds in engines.values() for kind in kinds.values()]
    assert sorted(kind.held_out_median for kind in every)[len(every) // 2] < 0.15
    assert all(0 < kind.bandwidth <= 1 and 0 < kind.rate <= 1 for kind in every)
