"""Launch files of a deployment: a ``vllm serve`` command, a Compose file, Kubernetes manifests."""

from __future__ import annotations

import json
import shlex
from typing import Any

from presim.serving.plan import Plan

_IMAGE = "vllm/vllm-openai:v0.33.0"
_PORT = 8000


def arguments(model: str, plan: Plan, role: str = "any") -> list[str]:
    """Arguments of ``vllm serve``; omitted where presim and vLLM share the default."""
    words = [model, "--tensor-parallel-size", str(plan.tp)]
    words += ["--pipeline-parallel-size", str(plan.pp)] if plan.pp > 1 else []
    words += ["--data-parallel-size", str(plan.dp)] if plan.dp > 1 else []
    words += ["--enable-expert-parallel"] if plan.ep else []
    words += ["--quantization", "fp8"] if plan.weights == "fp8" else []
    words += ["--kv-cache-dtype", "fp8"] if plan.cache == "fp8" else []
    words += ["--max-num-seqs", str(plan.max_num_seqs), "--max-num-batched-tokens", str(plan.max_num_batched_tokens)]
    words += ["--max-model-len", str(plan.max_model_len)] if plan.max_model_len else []
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


def command(model: str, plan: Plan, role: str = "any") -> str:
    """The ``vllm serve`` command of one engine."""
    return shlex.join(["vllm", "serve", *arguments(model, plan, role)])


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
                "image": _IMAGE,
                "command": arguments(model, plan, role),
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
        labels = {"app": f"vllm-{name}"}
        container = {
            "name": "vllm",
            "image": _IMAGE,
            "args": arguments(model, plan, role),
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
