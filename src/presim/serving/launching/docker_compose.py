"""A Compose file for the engines of one machine and the router."""

from __future__ import annotations

import json
from typing import Any

from presim.serving.launching.arguments import image
from presim.serving.launching.launch_set import Instance, LaunchSet
from presim.serving.launching.routers import IMAGE, container_script, local_router_command
from presim.serving.launching.scripts import engine_script, variables

_CACHE = "/huggingface"  # in a container: checkpoints that the machine has


def compose(launch_set: LaunchSet) -> str:
    """The file's text (JSON is YAML). All services share the machine's network, as ports are told apart."""
    services = {instance.name: _engine(instance) for instance in launch_set.instances()}
    if launch_set.needs_router:
        script = container_script(launch_set, local_router_command(launch_set))
        services["router"] = {"image": IMAGE, "entrypoint": _shell(script), "network_mode": "host"}
    return json.dumps({"services": services}, indent=2) + "\n"


def _engine(instance: Instance) -> dict[str, Any]:
    role = instance.role
    device_ids = [str(gpu_id) for gpu_id in instance.gpu_ids]
    devices = [{"driver": "nvidia", "device_ids": device_ids, "capabilities": ["gpu"]}]
    volumes = [f"{role.source.name}:{role.source.name}:ro"] if role.source.is_path else []
    return {
        "image": image(role.plan),
        "entrypoint": _shell(engine_script(role)),
        "environment": {**variables(instance), "HF_HOME": _CACHE, "HF_TOKEN": "${HF_TOKEN:-}"},
        "network_mode": "host",
        "ipc": "host",
        "volumes": [*volumes, f"${{HF_HOME:-~/.cache/huggingface}}:{_CACHE}"],
        "deploy": {"resources": {"reservations": {"devices": devices}}},
    }


def _shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script.replace("$", "$$")]  # Compose itself replaces $NAME
