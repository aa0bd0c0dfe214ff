"""Memory as start-up logs of vLLM state it: weights, the peak of the profiling run, and what is left for the cache."""

from __future__ import annotations

from typing import Any

import pytest

from presim.errors import InputError, MisfitError
from presim.hardware import catalogue
from presim.serving.defaults import with_defaults
from presim.serving.drafting import Drafting
from presim.serving.kv.pools import pool_of
from presim.serving.model_lookup import find
from presim.serving.serving_options import EngineOptions, FleetOptions, LifeOptions
from presim.serving.serving_plan import ServingPlan, Weights
from presim.serving.steps.engine_memory import MemoryPlan, lay_out
from presim.serving.weight_types import typed
from presim.units import GIB
from presim.verbs.serve import deployment_of

# llm-d's memory profiles of vLLM 0.11 on H100s at 0.9: GiB of weights, activations and cache on one GPU.
OF_0_11: list[tuple[str, int, Weights | None, float, float, float]] = [
    ("openai/gpt-oss-20b", 1, None, 13.47, 7.38, 50.28),
    ("llama3-8b", 1, None, 14.99, 4.76, 51.38),
    ("llama3-70b", 2, "fp8", 33.88, 4.84, 32.00),
    ("qwen3-0.6b", 1, None, 1.12, 5.56, 64.45),
    ("qwen3-32b", 1, None, 61.03, 5.64, 4.45),
    ("qwen3-32b", 2, None, 30.59, 5.64, 34.49),
]


def memory_of(word: str, weights: Weights | None = None, **fields: Any) -> MemoryPlan:
    model, gpu = find(word), catalogue.gpu("h100-sxm")
    return lay_out(model, typed(with_defaults(fields, model, gpu), model, weights, None), gpu)


@pytest.mark.parametrize(("word", "tp", "weights", "weights_gib", "peak_gib", "cache_gib"), OF_0_11)
def test_memory_is_that_of_start_up_logs_of_0_11(
    word: str, tp: int, weights: Weights | None, weights_gib: float, peak_gib: float, cache_gib: float
) -> None:
    memory = memory_of(word, weights, tp=tp, max_model_len=16000, gpu_memory_utilization=0.9, engine_version="0.11.0")
    assert memory.weights / GIB == pytest.approx(weights_gib, rel=0.01)
    assert memory.activations / GIB == pytest.approx(peak_gib, rel=0.03)
    assert memory.cache / GIB == pytest.approx(cache_gib, rel=0.03)


# llm-d's accuracy report of its planner, vLLM 0.19 on H100s at 0.95: GiB of activations and outside PyTorch on one GPU.
OF_0_19: list[tuple[str, int, Weights | None, float, float]] = [
    ("llama3-8b", 1, None, 1.89, 0.25),
    ("llama3-8b", 4, None, 1.89, 2.13),
    ("qwen2.5-7b", 2, None, 2.21, 2.06),
    ("qwen3-8b", 1, None, 2.21, 0.25),
    ("phi-4", 1, None, 1.52, 0.25),
    ("qwen2.5-72b", 2, None, 2.29, 2.09),
    ("llama3-70b", 2, "fp8", 1.96, 2.10),
    ("qwen3-30b-a3b", 1, None, 2.68, 0.27),
    ("deepseek-v2-lite", 1, None, 1.93, 0.26),
    ("mixtral-8x7b", 2, None, 1.21, 2.07),
    ("openai/gpt-oss-20b", 2, None, 2.87, 2.07),
]


@pytest.mark.parametrize(("word", "tp", "weights", "peak_gib", "beside_gib"), OF_0_19)
def test_memory_is_that_of_start_up_logs_of_0_19(
    word: str, tp: int, weights: Weights | None, peak_gib: float, beside_gib: float
) -> None:
    """The cache is the share less the weights, which are met within 0.5 %, and less these two."""
    limits: dict[str, Any] = {"max_model_len": 8192, "gpu_memory_utilization": 0.95, "engine_version": "0.19.0"}
    memory = memory_of(word, weights, tp=tp, **limits)
    assert memory.activations / GIB == pytest.approx(peak_gib, rel=0.08)
    assert (memory.reserved - memory.uncounted) / GIB == pytest.approx(beside_gib, abs=0.05)
    measured_gib = 0.95 * 79.19 - memory.weights / GIB - peak_gib - beside_gib
    assert memory.cache / GIB == pytest.approx(measured_gib, rel=0.03)


@pytest.mark.parametrize(("longest", "peak_gib", "cache_gib"), [(20000, 2.07, 3.81), (29000, 2.99, 2.89)])
def test_vllms_former_core_profiles_a_prompt_of_the_longest_length(
    longest: int, peak_gib: float, cache_gib: float
) -> None:
    """Logs of 0.6.4 for Llama-3.1-8B on an RTX 3090 (vllm-project/vllm#10517); what is outside PyTorch is uncertain."""
    model, gpu = find("llama3-8b"), catalogue.gpu("rtx-3090")
    plan = with_defaults({"max_model_len": longest, "engine_version": "0.6.4"}, model, gpu)
    memory = lay_out(model, plan, gpu)
    assert memory.activations / GIB == pytest.approx(peak_gib, rel=0.08)
    assert memory.cache / GIB == pytest.approx(cache_gib, rel=0.08)


@pytest.mark.parametrize(
    ("version", "tp", "beside_gib"), [("0.10", 1, 0.13), ("0.10", 2, 0.55), ("0.10", 4, 2.1), ("0.19", 2, 2.1)]
)
def test_former_nccl_keeps_no_buffers_for_sharp_between_two_gpus(version: str, tp: int, beside_gib: float) -> None:
    memory = memory_of("llama3-70b", "fp8", tp=tp, max_model_len=4096, engine_version=version, num_gpu_blocks=2)
    assert (memory.reserved - memory.uncounted) / GIB == pytest.approx(beside_gib, abs=0.01)


def test_a_log_of_four_gpus_before_0_11() -> None:
    """https://github.com/vllm-project/vllm/issues/21348: 8.11 GiB for the cache of each H100."""
    limits: dict[str, Any] = {"gpu_memory_utilization": 0.9, "engine_version": "0.10.0"}
    memory = memory_of("qwen3-235b-a22b", "fp8-block", tp=4, **limits)
    assert memory.cache / GIB == pytest.approx(8.11, rel=0.06)


def test_gpt_oss_120b_fits_an_h100_only_with_a_larger_share() -> None:
    """The logs of 0.11 leave 3.33 GiB at 0.95; at 0.9 the weights and the sampler's peak alone exceed the share."""
    limits: dict[str, Any] = {"max_model_len": 16000, "engine_version": "0.11.0"}
    assert memory_of("openai/gpt-oss-120b", gpu_memory_utilization=0.95, **limits).cache / GIB == pytest.approx(
        3.3, 0.1
    )
    with pytest.raises(MisfitError, match=r"weights 64\.5 GiB, activations 7\.4, others 0\.1 of 71\.3 GiB"):
        memory_of("openai/gpt-oss-120b", gpu_memory_utilization=0.9, **limits)


def test_tokens_of_the_newest_engine_are_those_of_its_log() -> None:
    """A log of October 2026: Llama 3.1 8B, defaults, 460,496 tokens in 56.21 GiB."""
    memory = memory_of("llama3-8b")
    assert memory.cache / GIB == pytest.approx(56.21, rel=0.01)
    assert memory.blocks * 16 == pytest.approx(460_496, rel=0.01)


@pytest.mark.parametrize(
    ("version", "peak_gib"),
    [("0.6", 1.22), ("0.8", 4.72), ("0.16", 4.72), ("0.17", 1.87), ("0.24", 1.87), ("0.25", 1.22)],
)
def test_the_sampler_takes_memory_by_the_version_of_the_engine(version: str, peak_gib: float) -> None:
    limits: dict[str, Any] = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}  # those before 0.8 are others
    memory = memory_of("llama3-8b", engine_version=version, **limits)
    assert memory.activations / GIB == pytest.approx(peak_gib, abs=0.01)


@pytest.mark.parametrize(("gpu", "tp", "weights_gib"), [("h100-sxm", 1, 13.47), ("a100-pcie", 1, 13.72)])
def test_kernels_for_mxfp4_make_experts_larger_by_the_gpu(gpu: str, tp: int, weights_gib: float) -> None:
    """gpt-oss-20b by OpenAI's kernels on Hopper (llm-d), and by Marlin on an A100 (a log of 0.19)."""
    model, card = find("openai/gpt-oss-20b"), catalogue.gpu(gpu)
    memory = lay_out(model, typed(with_defaults({"tp": tp}, model, card), model, None, None), card)
    assert memory.weights / GIB == pytest.approx(weights_gib, rel=0.005)


def test_gpus_without_a_switch_keep_no_buffers_for_sharp() -> None:
    """Two RTX 5090 in 0.27: 15.03 GiB of weights and what is outside of PyTorch, of which 14.28 are weights."""
    model, gpu = find("llama3-8b"), catalogue.gpu("rtx-5090")
    memory = lay_out(model, with_defaults({"tp": 2, "max_model_len": 4096, "cuda_graphs": False}, model, gpu), gpu)
    assert (memory.reserved - memory.uncounted) / GIB == pytest.approx(0.76, abs=0.02)


def test_what_is_counted_adds_up_to_the_share() -> None:
    memory = memory_of("llama3-8b")
    counted = memory.weights + memory.activations + memory.reserved - memory.uncounted + memory.cache
    assert 0 <= memory.allowed - counted < memory.block


# Pages of vLLM's cache for Qwen3.6-27B and 3.8-27B, whose layers are the same (validation/engine_logs.csv).
OF_GATED_DELTA_NETS: list[tuple[str, str, Weights, int, dict[str, Any], int]] = [
    ("0.23.0", "h100-sxm", "fp8-block", 0, {"gpu_memory_utilization": 0.95, "max_num_seqs": 1024}, 856),
    ("0.27.0", "rtx-pro-6000", "bf16", 3, {"gpu_memory_utilization": 0.95}, 556),
    ("0.27.0", "rtx-pro-6000", "fp8-block", 3, {}, 939),
]


@pytest.mark.parametrize(("version", "gpu", "weights", "drafts", "limits", "pages"), OF_GATED_DELTA_NETS)
def test_pages_of_gated_delta_nets_are_those_of_start_up_logs(
    version: str, gpu: str, weights: Weights, drafts: int, limits: dict[str, Any], pages: int
) -> None:
    """vllm-project/recipes#551 and #831; that #831 drafted three tokens is concluded from the size of its pages."""
    model, card = find("qwen3.6-27b"), catalogue.gpu(gpu)
    fields = {"engine_version": version, "drafting": Drafting("mtp", drafts) if drafts else None, **limits}
    memory = lay_out(model, typed(with_defaults(fields, model, card), model, weights, None), card)
    assert memory.blocks == pytest.approx(pages, rel=0.03)


def test_a_states_page_has_room_for_the_inputs_of_drafts() -> None:
    """Two RTX 3090, FP8 cache, three drafts: 623,873 tokens in 11.05 GiB, as requests of 262,144 tokens take 179 pages.

    https://github.com/noonghunna/club-3090/issues/642: 426 pages of 17 layers with 1,600 tokens of 1,024 bytes.
    """
    model, gpu = find("qwen3.6-27b"), catalogue.gpu("rtx-3090")
    plan = ServingPlan(tp=2, cache="fp8", drafting=Drafting("mtp", 3), max_num_batched_tokens=8192, num_gpu_blocks=426)
    pages = pool_of(model, plan, gpu)
    assert (pages.block_tokens, pages.page_bytes) == (1600, 17 * 1600 * 1024)
    assert (pages.pages(262_144), pages.tokens(426, 262_144)) == (179, 623_873)


@pytest.mark.parametrize(("version", "counts"), [("0.20", False), ("0.21", True), ("0.25", False), ("0.29", True)])
def test_graphs_are_taken_off_the_cache_by_runner_and_version(version: str, counts: bool) -> None:
    """vLLM's other runner, the default of dense models from 0.25 on, did so later than the former."""
    plain, eager = (
        memory_of("llama3-8b", engine_version=version, max_model_len=8192, cuda_graphs=graphs)
        for graphs in (True, False)
    )
    assert (eager.cache > plain.cache) == counts


def test_an_engine_without_an_encoder_has_more_cache() -> None:
    """1.77 GiB on an RTX 5090 (recipe of Qwen3.8-27B): the encoder's weights, and its peak above the sampler's."""
    clusters = {"gpu": "rtx-5090", "node": None, "fabric": None, "cluster": None}
    limits: dict[str, Any] = {
        "weights": "int4",
        "max_model_len": 32768,
        "cuda_graphs": False,
        "engine_version": "0.26.1",
    }
    with_encoder, without = (
        deployment_of(
            "qwen3.6-27b", clusters, EngineOptions(**limits, language_model_only=only), FleetOptions(), LifeOptions()
        )
        for only in (False, True)
    )
    more_bytes = without.engine.memory.cache - with_encoder.engine.memory.cache
    assert more_bytes / GIB == pytest.approx(1.77, abs=0.12)
    sglang = EngineOptions(kernels="sglang", language_model_only=True)
    with pytest.raises(InputError, match="--language-model-only is an option of vLLM; leave it out, or --kernels"):
        deployment_of("qwen3.6-27b", clusters, sglang, FleetOptions(), LifeOptions())
