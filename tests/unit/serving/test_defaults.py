"""Limits that engines set by themselves, by the GPU's memory."""

from __future__ import annotations

import pytest

from presim.hardware import catalogue
from presim.serving.defaults import VllmStart, limits_by_start, sentence, with_defaults
from presim.serving.model_lookup import find

MODEL = find("llama3-8b")


@pytest.mark.parametrize(
    ("gpu", "tokens", "sequences"),
    [
        ("a10g", 2048, 256),
        ("rtx-4090", 2048, 256),
        ("a100-80gb-sxm", 2048, 256),
        ("h100-sxm", 8192, 1024),
        ("rtx-pro-6000", 8192, 1024),
        ("h200", 8192, 1024),
        ("b200", 16384, 1024),
        ("mi300x", 16384, 1024),
    ],
)
def test_vllm_takes_larger_batches_on_larger_gpus(gpu: str, tokens: int, sequences: int) -> None:
    plan = with_defaults({}, MODEL, catalogue.gpu(gpu))
    assert (plan.max_num_batched_tokens, plan.max_num_seqs, plan.gpu_memory_utilization) == (tokens, sequences, 0.92)
    assert plan.defaulted == ("gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs")


@pytest.mark.parametrize(
    ("start", "gpu", "limits"),
    [
        ("server", "h100-sxm", {}),
        ("llm", "h100-sxm", {"max_num_batched_tokens": 16384, "max_num_seqs": 1024}),
        ("llm", "a100-80gb-sxm", {"max_num_batched_tokens": 8192, "max_num_seqs": 256}),
        ("async-llm", "h100-sxm", {"max_num_batched_tokens": 2048, "max_num_seqs": 128}),
        ("async-llm", "t4", {"max_num_batched_tokens": 2048, "max_num_seqs": 128}),
    ],
)
def test_how_a_program_starts_vllm_decides_its_limits(start: VllmStart, gpu: str, limits: dict[str, int]) -> None:
    assert limits_by_start(start, catalogue.gpu(gpu)) == limits


@pytest.mark.parametrize(
    ("gpu", "tokens"), [("t4", 2048), ("a10g", 4096), ("l40s", 4096), ("h100-sxm", 8192), ("b200", 16384)]
)
def test_sglang_cuts_prompts_by_the_memory(gpu: str, tokens: int) -> None:
    plan = with_defaults({"kernels": "sglang", "num_gpu_blocks": 9999}, MODEL, catalogue.gpu(gpu))
    assert plan.max_num_batched_tokens == tokens
    assert 0.6 < plan.gpu_memory_utilization < 0.95


def test_sglang_runs_as_many_requests_as_half_its_tokens_allow() -> None:
    few, many = (
        with_defaults({"kernels": "sglang", "num_gpu_blocks": blocks}, MODEL, catalogue.gpu("h100-sxm")).max_num_seqs
        for blocks in (101, 100_000)
    )
    assert (few, many) == (101 * 16 // 2, 4096)


def test_what_is_said_is_no_default() -> None:
    plan = with_defaults({"max_num_seqs": 8, "max_num_batched_tokens": None}, MODEL, catalogue.gpu("h100-sxm"))
    assert plan.max_num_seqs == 8
    assert sentence(plan, catalogue.gpu("h100-sxm")) == (
        "Defaults of vLLM 0.33 for 79 GiB of GPU memory: gpu_memory_utilization 0.92, max_num_batched_tokens 8,192."
    )
    assert with_defaults({"max_num_batched_tokens": 100}, MODEL, catalogue.gpu("b200")).max_num_seqs == 100


def test_a_plan_without_defaults_says_nothing() -> None:
    fields = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "gpu_memory_utilization": 0.5}
    assert sentence(with_defaults(fields, MODEL, catalogue.gpu("l4")), catalogue.gpu("l4")) is None


@pytest.mark.parametrize(("longest", "tokens"), [(1000, 2048), (20000, 20000), (32768, 32768), (35000, 2048)])
def test_vllms_former_core_computes_prompts_whole_up_to_a_length(longest: int, tokens: int) -> None:
    plan = with_defaults({"max_model_len": longest, "engine_version": "0.6.4"}, MODEL, catalogue.gpu("rtx-3090"))
    assert (plan.max_num_batched_tokens, plan.max_num_seqs, plan.gpu_memory_utilization) == (tokens, 256, 0.9)
    assert sentence(plan, catalogue.gpu("rtx-3090")) == (
        "Defaults of vLLM 0.6.4 for 24 GiB of GPU memory: gpu_memory_utilization 0.9, "
        f"max_num_batched_tokens {tokens:,}, max_num_seqs 256."
    )


@pytest.mark.parametrize(
    ("kernels", "version", "text"),
    [
        ("vllm", "0.27.1", "vLLM 0.27.1 for 79"),
        ("vllm", "0.8.4", "vLLM 0.9, taken for 0.8.4, for 79"),
        ("sglang", "0.4.9", "SGLang 0.5.23, taken for 0.4.9, for 79"),
    ],
)
def test_the_report_says_whose_defaults_an_older_version_has(kernels: str, version: str, text: str) -> None:
    fields = {"kernels": kernels, "engine_version": version, "num_gpu_blocks": 9999}
    gpu = catalogue.gpu("h100-sxm")
    assert (sentence(with_defaults(fields, MODEL, gpu), gpu) or "").startswith(f"Defaults of {text} GiB")


@pytest.mark.parametrize(
    ("version", "gpu", "tokens", "share"),
    [
        ("0.19", "b200", 8192, 0.9),
        ("0.21", "b200", 8192, 0.92),
        ("0.27.1", "b200", 8192, 0.92),
        ("0.28", "b200", 16384, 0.92),
        ("0.19", "l4", 2048, 0.9),
    ],
)
def test_older_versions_of_vllm_take_smaller_batches_and_a_smaller_share(
    version: str, gpu: str, tokens: int, share: float
) -> None:
    plan = with_defaults({"engine_version": version}, MODEL, catalogue.gpu(gpu))
    assert (plan.max_num_batched_tokens, plan.gpu_memory_utilization) == (tokens, share)
