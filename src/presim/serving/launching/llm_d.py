"""llm-d's files: engines with the labels that its router selects by, and the values of the router's Helm chart.

Names are those of llm-d's router 0.9: https://github.com/llm-d/llm-d-router, `config/charts` and `pkg/sidecar`.
"""

from __future__ import annotations

import json
from typing import Any

from presim.errors import InputError
from presim.serving.launching.kubernetes import node_selector, role_objects
from presim.serving.launching.launch_set import EngineRole, LaunchSet

VERSION = "v0.9.0"
CHART = "oci://ghcr.io/llm-d/charts/llm-d-router-standalone"
RELEASE = "presim"
VALUES = "llm-d-router.json"
CLIENT_PORT = 8081  # of the chart's proxy, on the Service `RELEASE`-epp
_SIDECAR = f"ghcr.io/llm-d/llm-d-router-disagg-sidecar:{VERSION}"
_POOL = {"llm-d.ai/inference-serving": RELEASE}
_ROUTED_PORT, _ENGINE_PORT = 8000, 8200  # of the router's targets, and of engines behind a sidecar
_PICKERS: dict[str, list[dict[str, Any]]] = {"any": [], "prefill": [{"pluginRef": "prefill-filter"}],
                                             "decode": [{"pluginRef": "decode-filter"}]}  # fmt: skip


def manifest(launch_set: LaunchSet) -> str:
    """A List of the engines' objects (JSON is YAML).

    Raises:
        InputError: engines are not vLLM's, or one spans machines.
    """
    _check(launch_set)
    items: list[dict[str, Any]] = []
    for role in launch_set.roles:
        port = _ENGINE_PORT if role.role == "decode" else _ROUTED_PORT
        objects = role_objects(role, port, node_selector(launch_set, role))
        for item in objects:
            if item["kind"] == "StatefulSet":
                _join(item["spec"]["template"], role)
        items += objects
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"


def router_values(launch_set: LaunchSet) -> str:
    """Values of the router's chart: the engine with the fewest requests is picked, of each role."""
    roles = [role.role for role in launch_set.roles]
    filters = [plugin["pluginRef"] for role in roles for plugin in _PICKERS[role]]
    handler: list[dict[str, Any]] = [{"type": "single-profile-handler"}]
    if filters:
        decider = "always-disagg-pd-decider"
        handler = [
            {"type": decider},
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": decider}}},
        ]
    picking = [{"pluginRef": "active-request-scorer"}, {"pluginRef": "max-score-picker"}]
    profiles = [
        {"name": "default" if role == "any" else role, "plugins": [*_PICKERS[role], *picking]} for role in roles
    ]
    types = [*filters, "active-request-scorer", "max-score-picker"]
    config = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*handler, *({"type": name} for name in types)],
        "schedulingProfiles": profiles,
    }
    picker = {
        "replicas": 1,  # each counts requests for itself
        "pluginsConfigFile": "presim.yaml",
        "pluginsCustomConfig": {"presim.yaml": json.dumps(config, indent=2)},
    }
    servers = {"matchLabels": _POOL, "type": "vllm", "protocol": "http", "targetPorts": [{"number": _ROUTED_PORT}]}
    return json.dumps({"router": {"epp": picker, "modelServers": servers}}, indent=2) + "\n"


def _check(launch_set: LaunchSet) -> None:
    if launch_set.engine != "vllm":
        raise InputError("--router llm-d is written for vLLM's engines; use --router sglang or dynamo")
    for role in launch_set.roles:
        if role.nodes > 1:
            raise InputError(
                f"--router llm-d is written for engines of one machine, and {role.plan.text} has {role.plan.gpus} GPUs "
                f"on machines of {role.gpus_per_node}; use --router vllm"
            )


def _join(template: dict[str, Any], role: EngineRole) -> None:
    """Add the pod to the router's pool, and before a decode engine the sidecar that has its prompts prefilled."""
    labels = {**_POOL, "llm-d.ai/role": role.role} if role.role != "any" else _POOL
    template["metadata"]["labels"] = {**template["metadata"]["labels"], **labels}
    if role.role == "decode":
        words = [f"--port={_ROUTED_PORT}", f"--vllm-port={_ENGINE_PORT}", "--kv-connector=nixlv2"]
        sidecar = {
            "name": "routing-proxy",
            "image": _SIDECAR,
            "args": [*words, "--secure-proxy=false"],
            "ports": [{"containerPort": _ROUTED_PORT}],
            "restartPolicy": "Always",  # it runs beside the engine
        }
        template["spec"]["initContainers"] = [sidecar]


def install_command() -> str:
    """The command that installs the router."""
    return f"helm install {RELEASE} {CHART} --version {VERSION} -f {VALUES}"
