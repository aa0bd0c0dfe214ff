"""Arguments of vLLM's and SGLang's servers for a plan, by the role of an engine."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from presim.errors import InputError
from presim.serving.engines.engine import Role
from presim.serving.launching.checkpoint_source import CheckpointSource
from presim.serving.serving_plan import AUTO_LENGTH, VLLM_CACHES, Scheduler, ServingPlan
from presim.units import GIB

_CONNECTOR = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
_VLLM_METHODS = {"mtp": "mtp", "ngram": "ngram"}  # of drafting without another checkpoint


@dataclasses.dataclass(frozen=True)
class Server:
    """How an engine is started."""

    repository: str  # of its container
    tag: str  # of the version whose arguments these are
    command: tuple[str, ...]
    arguments: Callable[[CheckpointSource, ServingPlan, Role], list[str]]


def image(plan: ServingPlan) -> str:
    """The container of a plan's engine, of its version."""
    server, version = SERVERS[plan.decides], plan.engine_version
    if version is None:
        return f"{server.repository}:{server.tag}"
    missing = max(2 - version.count("."), 0)
    return f"{server.repository}:v{version.removeprefix('v')}{'.0' * missing}"


def arguments(source: CheckpointSource, plan: ServingPlan, role: Role = "any") -> list[str]:
    """Arguments of the engine's server; omitted where presim and the engine share the default."""
    return SERVERS[plan.decides].arguments(source, plan, role)


def command(source: CheckpointSource, plan: ServingPlan, role: Role = "any") -> str:
    """The command that starts one engine on one machine."""
    return shlex.join([*SERVERS[plan.decides].command, *arguments(source, plan, role)])


def _vllm(source: CheckpointSource, plan: ServingPlan, role: Role) -> list[str]:
    words = [source.name, "--tensor-parallel-size", str(plan.tp)]
    words += ["--pipeline-parallel-size", str(plan.pp)] if plan.pp > 1 else []
    words += ["--data-parallel-size", str(plan.dp)] if plan.dp > 1 else []
    words += ["--decode-context-parallel-size", str(plan.dcp)] if plan.dcp > 1 else []
    words += ["--enable-expert-parallel"] if plan.ep else []
    words += ["--quantization", source.quantization] if source.quantization else []
    if plan.cache != "bf16" or source.cache != "bf16":  # "auto" would follow such a checkpoint
        words += ["--kv-cache-dtype", VLLM_CACHES[plan.cache] if plan.cache != "bf16" else "bfloat16"]
    words += ["--max-num-seqs", str(plan.max_num_seqs), "--max-num-batched-tokens", str(plan.max_num_batched_tokens)]
    if plan.max_model_len is not None:
        words += ["--max-model-len", "auto" if plan.max_model_len == AUTO_LENGTH else str(plan.max_model_len)]
    words += ["--gpu-memory-utilization", f"{plan.gpu_memory_utilization:g}", "--block-size", str(plan.block_size)]
    host_gib = plan.offload.host_gib / plan.dp if plan.offload else 0.0  # each data-parallel rank has its own
    words += ["--kv-offloading-size", f"{host_gib:g}"] if host_gib and role == "any" else []
    words += [] if plan.async_scheduling else ["--no-async-scheduling"]
    words += [] if plan.prefix_caching else ["--no-enable-prefix-caching"]
    words += [] if plan.cuda_graphs else ["--enforce-eager"]
    words += ["--scheduling-policy", plan.policy] if plan.policy != "fcfs" else []
    interval = plan.prefill_schedule_interval
    words += ["--prefill-schedule-interval", str(interval)] if interval > 1 else []
    if plan.drafting is not None and plan.drafting.method in _VLLM_METHODS:
        drafts = {"method": _VLLM_METHODS[plan.drafting.method], "num_speculative_tokens": plan.drafting.tokens}
        words += ["--speculative-config", json.dumps(drafts)]
    words += ["--kv-transfer-config", json.dumps(_connectors(host_gib))] if role != "any" else []
    return words


def _connectors(host_gib: float) -> dict[str, Any]:
    """NIXL between roles, and host memory of so many GiB beside it: `--kv-offloading-size` would take NIXL's place.

    So vLLM 0.33 does in config/vllm.py (`_post_init_kv_transfer_config`).
    """
    if not host_gib:
        return dict(_CONNECTOR)
    extra = {"cpu_bytes_to_use": int(host_gib * GIB)}
    host = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    connectors = {"connectors": [_CONNECTOR, host]}
    return {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": connectors}


def _sglang(source: CheckpointSource, plan: ServingPlan, role: Role) -> list[str]:
    ranks = plan.tp * plan.dp
    words = ["--model-path", source.name, "--tp-size", str(ranks)]
    words += ["--attn-dp-size", str(plan.dp)] if plan.dp > 1 else []
    words += ["--ep-size", str(ranks)] if plan.ep else []
    words += ["--quantization", source.quantization] if source.quantization else []
    words += ["--kv-cache-dtype", "fp8_e4m3"] if plan.cache == "fp8" else []
    words += ["--max-running-requests", str(plan.max_num_seqs)]
    words += ["--chunked-prefill-size", str(plan.max_num_batched_tokens)]
    words += ["--context-length", str(plan.max_model_len)] if plan.max_model_len not in (None, AUTO_LENGTH) else []
    words += ["--page-size", str(plan.block_size)]
    words += [] if plan.async_scheduling else ["--disable-overlap-schedule"]
    words += [] if plan.prefix_caching else ["--disable-radix-cache"]
    words += ["--disaggregation-mode", role, "--disaggregation-transfer-backend", "nixl"] if role != "any" else []
    return words


def refuse_engines_without_files(engines: Sequence[str]) -> None:
    """Refuse to search engines for which presim writes no files.

    Raises:
        InputError: TensorRT-LLM is among them.
    """
    if "trtllm" in engines:
        raise InputError("--write has files of vLLM and SGLang: leave out --engine trtllm, or --write")


SERVERS: dict[Scheduler, Server] = {
    "vllm": Server("vllm/vllm-openai", "v0.33.0", ("vllm", "serve"), _vllm),
    "sglang": Server("lmsysorg/sglang", "v0.5.23", ("python3", "-m", "sglang.launch_server"), _sglang),
}
