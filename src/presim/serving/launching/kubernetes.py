"""Kubernetes manifests: a StatefulSet with stable host names for each role, the router, and Services."""

from __future__ import annotations

import json
from typing import Any

from presim.serving.launching.arguments import image
from presim.serving.launching.launch_set import ENGINE_PORT, ROUTER_PORT, EngineRole, LaunchSet
from presim.serving.launching.routers import IMAGE, cluster_router_command, container_script
from presim.serving.launching.scripts import engine_script

_TOKEN = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}


def kubernetes(launch_set: LaunchSet) -> str:
    """A List of all objects (JSON is YAML)."""
    items: list[dict[str, Any]] = []
    hosts: dict[str, list[str]] = {}
    for role in launch_set.roles:
        sets = _stateful_sets(role)
        items += role_objects(role, ENGINE_PORT, node_selector(launch_set, role))
        answering = 1 if role.nodes > 1 else role.count  # pods that answer clients
        hosts[role.name] = [f"{name}-{pod}.{name}" for name in sets for pod in range(answering)]
    items += _router(launch_set, hosts)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"


def role_objects(role: EngineRole, port: int, selector: dict[str, Any]) -> list[dict[str, Any]]:
    """The StatefulSets of a role's engines, which answer at a port, and their headless Services.

    ``selector``: from `node_selector`.
    """
    sets = _stateful_sets(role)
    services = [_service(name, port, is_headless=True) for name in sets]
    return services + [_stateful_set(role, name, replicas, port, selector) for name, replicas in sets.items()]


def _stateful_sets(role: EngineRole) -> dict[str, int]:
    """Names and numbers of pods: all engines of a role together, or one set of pods for each that spans machines."""
    if role.nodes == 1:
        return {role.name: role.count}
    return {f"{role.name}-{index}": role.nodes for index in range(role.count)}


def node_selector(launch_set: LaunchSet, role: EngineRole) -> dict[str, Any]:
    """Fields of a pod that choose machines with the role's GPU, where roles have different ones."""
    return {"nodeSelector": {"nvidia.com/gpu.product": role.gpu_label}} if launch_set.has_mixed_gpus else {}


def _stateful_set(role: EngineRole, name: str, replicas: int, port: int, selector: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {**_pod(role, name, port), **selector}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def _pod(role: EngineRole, name: str, port: int) -> dict[str, Any]:
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if role.source.is_path:
        mounts.append({"name": "checkpoint", "mountPath": role.source.name})
        volumes.append({"name": "checkpoint", "hostPath": {"path": role.source.name}})
    container = {
        "name": role.plan.decides,
        "image": image(role.plan),
        "command": ["/bin/sh", "-c", engine_script(role)],
        "env": _environment(role, name, port),
        "ports": [{"containerPort": port}],
        "resources": {"limits": {"nvidia.com/gpu": role.plan.gpus // role.nodes}},
        "volumeMounts": mounts,
    }
    if role.nodes == 1:
        probe = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 10}
        container["readinessProbe"] = probe
    return {"containers": [container], "volumes": volumes}


def _environment(role: EngineRole, name: str, port: int) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = [_TOKEN, {"name": "PORT", "value": str(port)}]
    if role.role != "any" and role.plan.decides == "vllm":
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        variables.append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address})
    if role.nodes > 1:
        rank = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
        variables.append({"name": "NODE_RANK", "valueFrom": rank})
        variables.append({"name": "MASTER", "value": f"{name}-0.{name}"})
    return variables


def _service(name: str, port: int, *, is_headless: bool) -> dict[str, Any]:
    labels = {"app": name}
    spec: dict[str, Any] = {"selector": labels, "ports": [{"port": port, "targetPort": port}]}
    if is_headless:  # pods find each other before they are ready
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _router(launch_set: LaunchSet, hosts: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The router; or, before one engine, a Service of its own name."""
    if not launch_set.needs_router:
        service = _service("router", ROUTER_PORT, is_headless=False)
        engine = launch_set.roles[0]
        pod = next(iter(hosts.values()))[0].partition(".")[0]
        selector = {"statefulset.kubernetes.io/pod-name": pod} if engine.nodes > 1 else {"app": engine.name}
        ports = [{"port": ROUTER_PORT, "targetPort": ENGINE_PORT}]
        return [{**service, "spec": {"selector": selector, "ports": ports}}]
    labels = {"app": "router"}
    script = container_script(launch_set, cluster_router_command(launch_set, dict(hosts)))
    container = {
        "name": "router",
        "image": IMAGE,
        "command": ["/bin/sh", "-c", script],
        "ports": [{"containerPort": ROUTER_PORT}],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "router", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    return [deployment, _service("router", ROUTER_PORT, is_headless=False)]
