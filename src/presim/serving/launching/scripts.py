"""Shell scripts: one that starts an engine of a role, the router, and all of a machine.

Containers run the same scripts, so that what is tested is what runs everywhere. A script takes what differs between
engines of a role from variables: PORT, MODEL, and NODE_RANK and MASTER where an engine spans machines.
"""

from __future__ import annotations

import shlex

from presim.serving.launching.arguments import SERVERS, arguments
from presim.serving.launching.launch_set import ROUTER_PORT, EngineRole, Instance, LaunchSet
from presim.serving.launching.routers import local_router_command

MODEL = '"$MODEL"'


def engine_script(role: EngineRole) -> str:
    """Starts one engine of a role, or its part of one machine."""
    server = SERVERS[role.plan.decides]
    words = [MODEL if word == role.source.name else shlex.quote(word) for word in _arguments(role)]
    missing = role.source.problem
    lines = [
        "#!/bin/sh",
        f"# One {role.name}: {role.plan.text} on {role.plan.gpus} GPUs" + f" of {role.nodes} machines" * _spans(role),
        "set -eu",
        f"MODEL=${{MODEL:?{missing}}}" if missing else f"MODEL=${{MODEL:-{shlex.quote(role.source.name)}}}",
    ]
    lines += ['test "$NODE_RANK" -ge 0  # of this machine, from 0', 'test -n "$MASTER"  # address of machine 0']
    lines = lines if _spans(role) else lines[:4]
    command = " ".join([*server.command, *words, "--host", "0.0.0.0", "--port", f'"${{PORT:-{ROUTER_PORT}}}"'])
    if not _spans(role):
        return "\n".join([*lines, f"exec {command} {_instance_words(role)}".rstrip()]) + "\n"
    return "\n".join([*lines, *_headless(role), f"exec {command} {_spanning(role)}"]) + "\n"


def _spans(role: EngineRole) -> bool:
    return role.nodes > 1


def _arguments(role: EngineRole) -> list[str]:
    return arguments(role.source, role.plan, role.role)


def _instance_words(role: EngineRole) -> str:
    """Ports that engines of one machine must not share."""
    if role.plan.decides == "vllm":
        return '--data-parallel-rpc-port "${RPC_PORT:-29550}"' if role.plan.dp > 1 else ""
    return '--disaggregation-bootstrap-port "${BOOTSTRAP_PORT:-8998}"' if role.role == "prefill" else ""


def _spanning(role: EngineRole) -> str:
    """Options of an engine that spans machines."""
    plan = role.plan
    if plan.decides == "sglang":
        return f'--nnodes {role.nodes} --node-rank "$NODE_RANK" --dist-init-addr "$MASTER":5000'
    if plan.dp == 1:
        return f'--nnodes {role.nodes} --node-rank "$NODE_RANK" --master-addr "$MASTER" $HEADLESS'
    ranks = -(-plan.dp // role.nodes)
    first = f'--data-parallel-start-rank "$((NODE_RANK * {ranks}))"'
    return f'--data-parallel-size-local {ranks} --data-parallel-address "$MASTER" {first} $HEADLESS'


def _headless(role: EngineRole) -> list[str]:
    """vLLM answers clients on machine 0 only."""
    if role.plan.decides != "vllm":
        return []
    return ["HEADLESS=", 'if [ "$NODE_RANK" -gt 0 ]; then HEADLESS=--headless; fi']


def variables(instance: Instance) -> dict[str, str]:
    """Environment of an engine beside others on one machine."""
    role = instance.role
    values = {"PORT": str(instance.port)}
    values |= {"RPC_PORT": str(instance.rpc_port)} if role.plan.dp > 1 else {}
    if role.role != "any" and role.plan.decides == "vllm":
        values |= {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(instance.side_channel_port),
        }
    if role.role == "prefill" and role.plan.decides == "sglang":
        values |= {"BOOTSTRAP_PORT": str(instance.bootstrap_port)}
    return values


def start_script(launch_set: LaunchSet) -> str:
    """Starts all engines of one machine and the router, and stops them together."""
    lines = [
        "#!/bin/sh",
        f"# All engines on this machine's {launch_set.gpus} GPUs, and http://127.0.0.1:{ROUTER_PORT} before them.",
        "set -eu",
        'cd "$(dirname "$0")"',
        "trap 'trap - EXIT; kill 0' EXIT INT TERM",
    ]
    for instance in launch_set.instances():
        gpu_ids = ",".join(map(str, instance.gpu_ids))
        values = " ".join(f"{name}={value}" for name, value in variables(instance).items())
        lines.append(f"CUDA_VISIBLE_DEVICES={gpu_ids} {values} sh ./{instance.role.name}.sh &")
    if launch_set.needs_router:
        lines.append(f"{shlex.join(local_router_command(launch_set))} &")
    return "\n".join([*lines, "wait"]) + "\n"
