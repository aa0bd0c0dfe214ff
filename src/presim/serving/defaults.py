"""Limits that an engine sets by itself: by the memory of its GPU, and SGLang's also by what its cache holds."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias

from presim.composition.models.description import Model
from presim.hardware import Gpu
from presim.serving.engine_versions import NEWEST, has_other_core, is_asynchronous, numbers_of
from presim.serving.kv.startup import asked_length
from presim.serving.serving_plan import ServingPlan
from presim.units import GIB

VERSIONS = {  # whose defaults these are
    "vllm": f"vLLM {NEWEST['vllm']}",
    "sglang": f"SGLang {NEWEST['sglang']}",
    "trtllm": f"TensorRT-LLM {NEWEST['trtllm']}",
}
# How a program starts vLLM: by its server, its class LLM, or `AsyncLLM.from_engine_args` without more.
VllmStart: TypeAlias = Literal["server", "llm", "async-llm"]
_MIB = 1 << 20
_FORMER_CORES_END, _LIMITS_BY_MEMORY = (0, 8), (0, 9)  # 0.8 chose limits by the name of the GPU (pull request 17073)
_WIDER_BATCHES = (0, 28)  # 16,384 tokens from 160 GiB on: vLLM's pull request 51726 of August 2026
_LARGER_SHARE = (0, 21)  # 0.92, with CUDA graphs taken off the cache; a log of 0.19 without the option has 0.9
_UNSPLIT_TOKENS = 32768  # the longest model whose prompts vLLM's former core computed whole, by default


def with_defaults(fields: dict[str, Any], model: Model, gpu: Gpu) -> ServingPlan:
    """The plan of these fields; those that are None or absent take the default of the plan's engine for the GPU."""
    explicit = {name: value for name, value in fields.items() if value is not None}
    plain = ServingPlan(**explicit)
    if "cache" not in explicit and _takes_cache_type(plain, model):
        explicit["cache"] = model.checkpoint.cache
        plain = dataclasses.replace(plain, cache=model.checkpoint.cache)
    if not is_asynchronous(plain.kernels, plain.engine_version):
        plain = dataclasses.replace(plain, async_scheduling=False)
    if has_other_core(plain.kernels, plain.engine_version):
        engine_defaults = _vllm_v0(plain, explicit, model)
    else:
        engine_defaults = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}[plain.kernels](plain, explicit, gpu)
    engine_defaults = {name: value for name, value in engine_defaults.items() if name not in explicit}
    plan = dataclasses.replace(plain, **engine_defaults, defaulted=tuple(sorted(engine_defaults)))
    if plan.kernels == "sglang" and "max_num_seqs" in engine_defaults:
        return dataclasses.replace(plan, max_num_seqs=_sglang_sequences(plan, model, gpu))
    return plan


def _takes_cache_type(plan: ServingPlan, model: Model) -> bool:
    """Whether the engine keeps keys and values as the checkpoint says: all do so with ModelOpt's, vLLM with others."""
    return plan.as_published and (plan.kernels == "vllm" or model.checkpoint.method == "modelopt")


def sentence(plan: ServingPlan, gpu: Gpu) -> str | None:
    """What the engine chose by itself, with its version; None where the user chose everything."""
    if not plan.defaulted:
        return None
    values = ", ".join(f"{_NAMES[plan.kernels].get(name, name)} {getattr(plan, name):,}" for name in plan.defaulted)
    return f"Defaults of {_version_text(plan)} for {gpu.memory_bytes / GIB:.0f} GiB of GPU memory: {values}."


def _version_text(plan: ServingPlan) -> str:
    """Whose defaults the plan has: those of its version, or of the nearest one whose defaults are known here."""
    if plan.engine_version is None:
        return VERSIONS[plan.kernels]
    if plan.kernels != "vllm":
        return f"{VERSIONS[plan.kernels]}, taken for {plan.engine_version},"
    is_without_defaults = _FORMER_CORES_END <= numbers_of(plan.engine_version) < _LIMITS_BY_MEMORY
    nearest_version = (
        f"{'.'.join(map(str, _LIMITS_BY_MEMORY))}, taken for {plan.engine_version}," if is_without_defaults else None
    )
    return f"vLLM {nearest_version or plan.engine_version}"


_NAMES: dict[str, dict[str, str]] = {
    "vllm": {},
    "sglang": {
        "max_num_batched_tokens": "chunked_prefill_size",
        "max_num_seqs": "max_running_requests",
        "gpu_memory_utilization": "mem_fraction_static",
    },
    "trtllm": {
        "max_num_batched_tokens": "max_num_tokens",
        "max_num_seqs": "max_batch_size",
        "gpu_memory_utilization": "share of GPU memory",
    },
}


def _vllm(plan: ServingPlan, explicit: dict[str, Any], gpu: Gpu) -> dict[str, Any]:
    """vLLM 0.33, engine/arg_utils.py, `get_batch_defaults` of its server; config/cache.py for the share of memory.

    Older versions differ in the largest batches and in the share.
    """
    version = numbers_of(plan.engine_version or NEWEST["vllm"])
    if gpu.memory_bytes >= 160 * GIB and version >= _WIDER_BATCHES:
        tokens, sequences = 16384, 1024
    elif gpu.memory_bytes >= 70 * GIB and "a100" not in gpu.name.lower():
        tokens, sequences = 8192, 1024
    else:
        tokens, sequences = 2048, 256
    tokens = explicit.get("max_num_batched_tokens", tokens)
    return {
        "max_num_batched_tokens": tokens,
        "max_num_seqs": min(sequences, tokens),
        "gpu_memory_utilization": 0.92 if version >= _LARGER_SHARE else 0.9,
    }


def _vllm_v0(plan: ServingPlan, explicit: dict[str, Any], model: Model) -> dict[str, Any]:
    """vLLM before 0.8, engine/arg_utils.py and config.py: prompts of up to 32,768 tokens are not split."""
    longest = asked_length(model, plan)
    tokens = explicit.get("max_num_batched_tokens", max(longest, 2048) if longest <= _UNSPLIT_TOKENS else 2048)
    return {"max_num_batched_tokens": tokens, "max_num_seqs": min(256, tokens), "gpu_memory_utilization": 0.9}


def limits_by_start(start: VllmStart, gpu: Gpu) -> dict[str, int]:
    """Default limits of vLLM that a program starts by a class; none for its server, whose own `with_defaults` takes.

    vLLM 0.33, engine/arg_utils.py, `get_batch_defaults`: it has entries for the server and for `LLM`. `AsyncLLM`, whose
    usage context is neither, falls back to DEFAULT_MAX_NUM_BATCHED_TOKENS and DEFAULT_MAX_NUM_SEQS of
    config/scheduler.py. https://github.com/vllm-project/vllm/blob/main/vllm/engine/arg_utils.py
    """
    if start == "server":
        return {}
    if start == "async-llm":
        return {"max_num_batched_tokens": 2048, "max_num_seqs": 128}
    is_large = gpu.memory_bytes >= 70 * GIB and "a100" not in gpu.name.lower()
    return {"max_num_batched_tokens": 16384 if is_large else 8192, "max_num_seqs": 1024 if is_large else 256}


def _sglang(plan: ServingPlan, explicit: dict[str, Any], gpu: Gpu) -> dict[str, Any]:
    """SGLang 0.5.23, srt/arg_groups/memory_hook.py, `handle_gpu_memory_settings`."""
    memory_mib = gpu.memory_bytes / _MIB
    bounds_gib = (20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512)
    row = next((row for row in bounds_gib if memory_mib < row[0] * 1024), (0, 16384, 512, 512))
    graphs = row[2] if plan.tp * plan.dp < 4 else row[3]
    tokens = explicit.get("max_num_batched_tokens", row[1])
    reserved_mib = 512 + 1.5 * max(tokens, 2048) + plan.tp * plan.dp * plan.pp / 8 * 1024
    if plan.cuda_graphs:
        reserved_mib += 2 * graphs + (graphs * plan.dp * (3 + 1.5 * (graphs > 300)) if plan.dp > 1 else 0)
    if memory_mib > 60 * 1024:
        reserved_mib = max(reserved_mib, 10 * 1024)
    return {
        "max_num_batched_tokens": tokens,
        "max_num_seqs": 2048,  # until what the cache holds is known: `_sglang_sequences`
        "gpu_memory_utilization": round((memory_mib - reserved_mib) / memory_mib, 3),
    }


def _sglang_sequences(plan: ServingPlan, model: Model, gpu: Gpu) -> int:
    """SGLang 0.5.23, srt/mem_cache/kv_cache_configurator.py, `resolve_max_num_reqs`."""
    from presim.serving.steps.engine_memory import lay_out

    memory = lay_out(model, plan, gpu)
    tokens = memory.blocks * plan.block_size
    return max(min(max(min(int(tokens / asked_length(model, plan) * 512), 4096), 2048), tokens // 2), 1)


def _trtllm(plan: ServingPlan, explicit: dict[str, Any], gpu: Gpu) -> dict[str, Any]:
    """The same on all GPUs: `BuildConfig` and `trtllm-serve` (tensorrt_llm/builder.py and commands/serve.py of 1.0).

    https://github.com/NVIDIA/TensorRT-LLM/blob/v1.0.0/tensorrt_llm/commands/serve.py; the cache gets 0.9 of the memory
    that weights leave free (https://nvidia.github.io/TensorRT-LLM/examples/kvcacheconfig.html).
    """
    return {"max_num_batched_tokens": 8192, "max_num_seqs": 2048, "gpu_memory_utilization": 0.9}
