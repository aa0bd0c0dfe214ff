"""NVIDIA Dynamo's manifest of a deployment: its frontend routes requests, its workers run vLLM or SGLang.

The form is that of Dynamo 1.3's examples (nvidia.com/v1alpha1, DynamoGraphDeployment), which Dynamo's operator reads.
"""

from __future__ import annotations

import json
from typing import Any

from presim.errors import InputError
from presim.serving.launching.arguments import arguments
from presim.serving.launching.kubernetes import node_selector
from presim.serving.launching.launch_set import ROUTER_PORT, EngineRole, LaunchSet

_IMAGES = {name: f"nvcr.io/nvidia/ai-dynamo/{name}-runtime:1.3.0" for name in ("vllm", "sglang")}
ENGINES = {"vllm": "vLLM 0.24", "sglang": "SGLang 0.5"}  # of these images
_SECRET = "hf-token-secret"
_SHARED_MEMORY = "64Gi"  # of a worker, as in the examples


def manifest(launch_set: LaunchSet) -> str:
    """The graph (JSON is YAML).

    Raises:
        InputError: an engine spans machines.
    """
    spanning = [role for role in launch_set.roles if role.nodes > 1]
    if spanning:
        role = spanning[0]
        raise InputError(
            f"--router dynamo is written for engines of one machine, and {role.plan.text} has {role.plan.gpus} GPUs on "
            f"machines of {role.gpus_per_node}; use --router {launch_set.engine}"
        )
    services: dict[str, Any] = {"Frontend": _frontend(launch_set)}
    services |= {
        f"{role.name.capitalize()}Worker": _worker(role, node_selector(launch_set, role)) for role in launch_set.roles
    }
    graph = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "presim"},
        "spec": {"services": services},
    }
    return json.dumps(graph, indent=2) + "\n"


def _frontend(launch_set: LaunchSet) -> dict[str, Any]:
    container = {
        "image": _IMAGES[launch_set.engine],
        "command": ["python3", "-m", "dynamo.frontend"],
        "args": ["--http-port", str(ROUTER_PORT)],
    }
    return {
        "componentType": "frontend",
        "envFromSecret": _SECRET,
        "replicas": 1,
        "extraPodSpec": {"mainContainer": container},
    }


def _worker(role: EngineRole, selector: dict[str, Any]) -> dict[str, Any]:
    engine = role.plan.decides
    words = arguments(role.source, role.plan, role.role)
    if engine == "vllm":
        words = ["--model", *words]
        words += ["--disaggregation-mode", role.role] if role.role != "any" else []
    container = {"image": _IMAGES[engine], "command": ["python3", "-m", f"dynamo.{engine}"], "args": words}
    kind = {"subComponentType": role.role} if role.role != "any" else {}
    return {
        "componentType": "worker",
        **kind,
        "envFromSecret": _SECRET,
        "replicas": role.count,
        "resources": {"limits": {"gpu": str(role.plan.gpus)}},
        "sharedMemory": {"size": _SHARED_MEMORY},
        "extraPodSpec": {"mainContainer": container, **selector},
    }
