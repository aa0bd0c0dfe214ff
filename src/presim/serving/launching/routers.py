"""Commands of the routers: vLLM's `vllm-router` and SGLang's `sglang_router`, before engines or prefill and decode."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from presim.serving.launching.launch_set import ENGINE_PORT, ROUTER_PORT, LaunchSet

# Releases that the tests hold the options against. Neither program has an image that is published with it.
PACKAGES = {"vllm": "vllm-router==0.1.17", "sglang": "sglang-router==0.3.2"}
IMAGE = "python:3.12-slim"
_PROGRAMS = {"vllm": ("vllm-router",), "sglang": ("python3", "-m", "sglang_router.launch_router")}
_APART = {"vllm": "--vllm-pd-disaggregation", "sglang": "--pd-disaggregation"}
_START_S = "1800"  # to load weights and capture CUDA graphs: a round value


def router_command(launch_set: LaunchSet, urls: dict[str, Sequence[str]], bootstrap_ports: Sequence[int]) -> list[str]:
    """The router before engines at URLs, by role; ``bootstrap_ports``: of SGLang's prefill engines."""
    program = launch_set.router
    words = [*_PROGRAMS[program], "--host", "0.0.0.0", "--port", str(ROUTER_PORT)]
    words += ["--worker-startup-timeout-secs", _START_S]
    if "engine" in urls:
        return [*words, "--policy", "power_of_two", "--worker-urls", *urls["engine"]]
    words += [_APART[program], "--policy", "power_of_two"]
    words += ["--kv-connector", "nixl"] if program == "vllm" else []
    for url, port in zip(urls["prefill"], bootstrap_ports, strict=True):
        words += ["--prefill", url, *([str(port)] if program == "sglang" else [])]
    for url in urls["decode"]:
        words += ["--decode", url]
    return words


def local_router_command(launch_set: LaunchSet) -> list[str]:
    """The router before the engines of its own machine."""
    urls: dict[str, list[str]] = {}
    ports = []
    for instance in launch_set.instances():
        urls.setdefault(instance.role.name, []).append(f"http://127.0.0.1:{instance.port}")
        ports += [instance.bootstrap_port] if instance.role.role == "prefill" else []
    return router_command(launch_set, dict(urls), ports)


def container_script(launch_set: LaunchSet, command: Sequence[str]) -> str:
    """Installs the router in a container and runs it."""
    return f"pip install --quiet {PACKAGES[launch_set.router]} && exec {shlex.join(command)}"


def cluster_router_command(launch_set: LaunchSet, hosts: dict[str, Sequence[str]]) -> list[str]:
    """The router before engines that each have a host of their own."""
    urls = {role: [f"http://{host}:{ENGINE_PORT}" for host in names] for role, names in hosts.items()}
    return router_command(launch_set, dict(urls), [8998] * len(hosts.get("prefill", ())))
