"""The folder of a deployment: every file that starts it, measures it and explains it, written together."""

from __future__ import annotations

import dataclasses
import shlex
from importlib import resources
from pathlib import Path

from presim.serving.answer.metrics import Slo
from presim.serving.deployments.deployment import Deployment
from presim.serving.engine_versions import EngineRelease
from presim.serving.launching import dynamo, llm_d
from presim.serving.launching.arguments import SERVERS
from presim.serving.launching.bench_script import WORKLOAD, Benchmark, bench_script, plan_file, rows
from presim.serving.launching.docker_compose import compose
from presim.serving.launching.kubernetes import kubernetes
from presim.serving.launching.launch_set import ROUTER_PORT, LaunchSet
from presim.serving.launching.rehearsal import calibrate_words, rehearsal_script, serve_words
from presim.serving.launching.routers import PACKAGES
from presim.serving.launching.scripts import engine_script, start_script
from presim.system.files import make_folder, write_file


@dataclasses.dataclass(frozen=True, eq=False)
class DeploymentFolder:
    """What the files are of."""

    word: str  # the user's word for the model
    name: str  # of the deployment
    launch_set: LaunchSet
    deployment: Deployment
    bench: Benchmark
    slo: Slo


def write(content: DeploymentFolder, directory: Path) -> None:
    """Write all files; those that an earlier answer left there and this one has not are deleted.

    Raises:
        InputError: a router is not written for the deployment, or the folder cannot be written to.
    """
    texts = files(content)
    make_folder(directory)
    for name in _NAMES - set(texts):
        (directory / name).unlink(missing_ok=True)
    for name, data in texts.items():
        write_file(directory / name, data)


_NAMES = frozenset(
    {"engine.sh", "prefill.sh", "decode.sh", "start.sh", "compose.json", "kubernetes.json", "rehearse.sh", "bench.sh"}
    | {"check_slo.py", "plan.json", "README.md", WORKLOAD, llm_d.VALUES}
)


def files(content: DeploymentFolder) -> dict[str, bytes]:
    """The files by name."""
    launch_set, bench = content.launch_set, content.bench
    texts = _starting_files(launch_set)
    texts |= {
        "rehearse.sh": rehearsal_script(content.word, content.deployment),
        "bench.sh": bench_script(launch_set, bench),
        "check_slo.py": resources.files("presim.serving.launching").joinpath("slo_check.py").read_text(),
        "README.md": readme(content, sorted(texts)),
    }
    encoded = {name: text.encode() for name, text in texts.items()}
    return encoded | {"plan.json": plan_file(bench, content.slo, content.name), WORKLOAD: rows(bench.workload)}


def _starting_files(launch_set: LaunchSet) -> dict[str, str]:
    """The files that start the engines and the router, by name."""
    if launch_set.router == "dynamo":
        return {"kubernetes.json": dynamo.manifest(launch_set)}
    if launch_set.router == "llm-d":
        return {"kubernetes.json": llm_d.manifest(launch_set), llm_d.VALUES: llm_d.router_values(launch_set)}
    texts = {"kubernetes.json": kubernetes(launch_set)}
    texts |= {f"{role.name}.sh": engine_script(role) for role in launch_set.roles}
    if launch_set.fits_a_node:
        texts |= {"start.sh": start_script(launch_set), "compose.json": compose(launch_set)}
    return texts


def readme(content: DeploymentFolder, starting: list[str]) -> str:
    """One page: what this is, how it starts, how it is measured."""
    launch_set, bench = content.launch_set, content.bench
    figures = bench.steady.figures
    shown = {name: content.slo.statistics.get(name, "mean") for name in ("ttft", "tpot")}
    predicted = ", ".join(
        f"{level} {name.upper()} {figures[f'{level}_{name}_ms']:.4g} ms" for name, level in shown.items()
    )
    lines = [f"# {content.name}", ""]
    lines += [f"{content.word} on {launch_set.gpus} GPUs, for {bench.rate:.4g} requests/s. Predicted: {predicted}.", ""]
    if content.slo.bounds:
        lines += [f"SLO: {content.slo.text}.", ""]
    lines += [f"**First:** {problem}." for problem in launch_set.problems]
    lines += _about_version(launch_set)
    lines += ["## Start", ""]
    if "start.sh" in starting:
        lines += [
            f"- One machine: `sh start.sh`, or `docker compose -f compose.json up`. Clients use port {ROUTER_PORT}."
        ]
    lines += [_about_cluster(launch_set)]
    if launch_set.needs_router and launch_set.router in PACKAGES:
        lines += [f"- The router is `{PACKAGES[launch_set.router]}` from PyPI; containers install it when they start."]
    if any(role.role != "any" for role in launch_set.roles) and launch_set.engine == "vllm":
        lines += ["- Prefill engines send keys and values by NIXL (`pip install nixl` outside the image)."]
    lines += ["", "## Measure", ""]
    lines += [
        f"- `sh bench.sh` sends {len(bench.workload):,} requests ({WORKLOAD}) with `vllm bench serve`, "
        "`sh bench.sh aiperf` with AIPerf, and says whether the SLO is met (`check_slo.py`).",
        "- Its first requests meet empty engines and are left out, as in the prediction; `plan.json` has the figures.",
        _about_calibration(content),
        "- `sh rehearse.sh` answers at the same address without GPUs, to try `bench.sh`.",
        "",
        "## Detail",
        "",
        f"`{shlex.join(serve_words(content.word, content.deployment))} --rate {bench.rate:.4g}` with the lengths of "
        "your requests shows queues, batches, memory and intervals.",
        "",
    ]
    return "\n".join(lines)


def _about_version(launch_set: LaunchSet) -> list[str]:
    """A warning where a version was named: arguments are those of another."""
    plan = launch_set.roles[0].plan
    if plan.engine_version is None or launch_set.router == "dynamo":
        return []
    release, server = EngineRelease(plan.decides, plan.engine_version), SERVERS[plan.decides]
    return [f"**First:** compare the arguments, which are those of {server.tag}, with what {release.text} takes.", ""]


def _about_calibration(content: DeploymentFolder) -> str:
    if content.launch_set.has_mixed_gpus:
        return "- `presim calibrate serving` corrects predictions of engines on one kind of GPU, not of these."
    command = shlex.join(calibrate_words(content.word, content.deployment))
    return (
        f"- Correct the prediction by the result: `{command}`; then ask `presim deploy` again with "
        "`--overheads overheads.json`."
    )


def _about_cluster(launch_set: LaunchSet) -> str:
    if launch_set.router == "dynamo":
        engine = dynamo.ENGINES[launch_set.engine]
        return f"- Kubernetes with Dynamo's operator: `kubectl apply -f kubernetes.json`. Its image has {engine}."
    if launch_set.router == "llm-d":
        return (
            f"- Kubernetes with llm-d's router {llm_d.VERSION}: `kubectl apply -f kubernetes.json`, then "
            f"`{llm_d.install_command()}`. Clients use the Service `{llm_d.RELEASE}-epp`, port {llm_d.CLIENT_PORT}; "
            f"bench.sh takes its address as `URL`."
        )
    machines = max(role.nodes for role in launch_set.roles)
    spans = f" An engine spans {machines} machines: `NODE_RANK` and `MASTER` tell its scripts which." * (machines > 1)
    apply = "kubectl apply -f kubernetes.json"
    return f"- Kubernetes: `{apply}`; clients use the Service `router`, port {ROUTER_PORT}.{spans}"
