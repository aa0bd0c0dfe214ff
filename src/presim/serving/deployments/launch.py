"""Launch files of a deployment: the command of vLLM or SGLang, a Compose file, Kubernetes manifests."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from typing import Any

from presim.serving.plan import AUTO_LENGTH, VLLM_CACHES, Plan, Scheduler

_PORT = 8000


def arguments(model: str, plan: Plan, role: str = "any") -> list[str]:
    """Arguments of the engine's server; omitted where presim and the engine share the default."""
    return _SERVERS[plan.decides].arguments(model, plan, role)


def _vllm(model: str, plan: Plan, role: str = "any") -> list[str]:
    words = [model, "--tensor-parallel-size", str(plan.tp)]
    words += ["--pipeline-parallel-size", str(plan.pp)] if plan.pp > 1 else []
    words += ["--data-parallel-size", str(plan.dp)] if plan.dp > 1 else []
    words += ["--enable-expert-parallel"] if plan.ep else []
    words += ["--quantization", "fp8"] if plan.weights == "fp8" and not plan.as_published else []
    words += ["--kv-cache-dtype", VLLM_CACHES[plan.cache]] if plan.cache != "bf16" else []
    words += ["--max-num-seqs", str(plan.max_num_seqs), "--max-num-batched-tokens", str(plan.max_num_batched_tokens)]
    if plan.max_model_len is not None:
        words += ["--max-model-len", "auto" if plan.max_model_len == AUTO_LENGTH else str(plan.max_model_len)]
    words += ["--gpu-memory-utilization", f"{plan.gpu_memory_utilization:g}", "--block-size", str(plan.block_size)]
    words += ["--kv-offloading-size", f"{plan.offload.host_gib:g}"] if plan.offload and plan.offload.host_gib else []
    words += [] if plan.async_scheduling else ["--no-async-scheduling"]
    words += [] if plan.prefix_caching else ["--no-enable-prefix-caching"]
    words += [] if plan.cuda_graphs else ["--enforce-eager"]
    words += ["--scheduling-policy", plan.policy] if plan.policy != "fcfs" else []
    if role != "any":
        both = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
        words += ["--kv-transfer-config", json.dumps(both)]
    return words


def _sglang(model: str, plan: Plan, role: str = "any") -> list[str]:
    ranks = plan.tp * plan.dp
    words = ["--model-path", model, "--host", "0.0.0.0", "--port", str(_PORT), "--tp-size", str(ranks)]
    words += ["--attn-dp-size", str(plan.dp)] if plan.dp > 1 else []
    words += ["--ep-size", str(ranks)] if plan.ep else []
    words += ["--quantization", "fp8"] if plan.weights == "fp8" and not plan.as_published else []
    words += ["--kv-cache-dtype", "fp8_e4m3"] if plan.cache == "fp8" else []
    words += ["--max-running-requests", str(plan.max_num_seqs)]
    words += ["--chunked-prefill-size", str(plan.max_num_batched_tokens)]
    words += ["--context-length", str(plan.max_model_len)] if plan.max_model_len not in (None, AUTO_LENGTH) else []
    words += ["--page-size", str(plan.block_size)]
    words += [] if plan.async_scheduling else ["--disable-overlap-schedule"]
    words += [] if plan.prefix_caching else ["--disable-radix-cache"]
    words += ["--disaggregation-mode", role, "--disaggregation-transfer-backend", "nixl"] if role != "any" else []
    return words


@dataclasses.dataclass(frozen=True)
class _Server:
    """How an engine is started."""

    image: str
    command: tuple[str, ...]
    started_by_image: bool  # the image runs the command itself
    arguments: Callable[[str, Plan, str], list[str]]


_SERVERS: dict[Scheduler, _Server] = {
    "vllm": _Server("vllm/vllm-openai:v0.33.0", ("vllm", "serve"), True, _vllm),
    "sglang": _Server("lmsysorg/sglang:v0.5.23", ("python3", "-m", "sglang.launch_server"), False, _sglang),
}


def command(model: str, plan: Plan, role: str = "any") -> str:
    """The command that starts one engine."""
    return shlex.join([*_SERVERS[plan.decides].command, *arguments(model, plan, role)])


def _in_container(model: str, plan: Plan, role: str) -> list[str]:
    server = _SERVERS[plan.decides]
    return [*(() if server.started_by_image else server.command), *arguments(model, plan, role)]


def _roles(replicas: int, prefill: int) -> list[tuple[str, str, int]]:
    if not prefill:
        return [("engine", "any", replicas)]
    return [("prefill", "prefill", prefill), ("decode", "decode", replicas)]


def compose(model: str, plan: Plan, replicas: int, prefill: int = 0) -> str:
    """A Compose file (JSON is YAML) with each engine and its GPUs; the user adds a router."""
    services: dict[str, Any] = {}
    for name, role, count in _roles(replicas, prefill):
        for number in range(count):
            services[f"{name}-{number}"] = {
                "image": _SERVERS[plan.decides].image,
                "command": _in_container(model, plan, role),
                "ipc": "host",
                "ports": [f"{_PORT + len(services)}:{_PORT}"],
                "deploy": {
                    "resources": {
                        "reservations": {
                            "devices": [{"driver": "nvidia", "count": plan.gpus, "capabilities": ["gpu"]}],
                        },
                    },
                },
            }
    return json.dumps({"services": services}, indent=2) + "\n"


def kubernetes(model: str, plan: Plan, replicas: int, prefill: int = 0) -> str:
    """A Kubernetes List with a Deployment and a Service per kind of engine (JSON is YAML)."""
    items: list[dict[str, Any]] = []
    for name, role, count in _roles(replicas, prefill):
        labels = {"app": f"{plan.decides}-{name}"}
        container = {
            "name": plan.decides,
            "image": _SERVERS[plan.decides].image,
            "args": _in_container(model, plan, role),
            "ports": [{"containerPort": _PORT}],
            "resources": {"limits": {"nvidia.com/gpu": plan.gpus}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": _PORT}, "periodSeconds": 10},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        }
        memory = {"name": "shm", "emptyDir": {"medium": "Memory"}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": [memory]}}
        items.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": labels["app"], "labels": labels},
                "spec": {"replicas": count, "selector": {"matchLabels": labels}, "template": template},
            }
        )
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": labels["app"], "labels": labels},
                "spec": {"selector": labels, "ports": [{"port": _PORT, "targetPort": _PORT}]},
            }
        )
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"
