"""Deployments that presim and aiconfigurator name for the same questions, both judged by presim's simulator.

    python validation/deploy_study.py --aiconfigurator DIR/bin/aiconfigurator --rows rows.json --out deploy-study.md

aiconfigurator comes from its package in an environment of its own (`python -m venv DIR; DIR/bin/pip install
aiconfigurator`). Its limits are of means, so both are asked for means. ``--rows`` keeps what is answered, and the same
call goes on from there; ``--seconds`` ends it between two questions.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.errors import InputError, PresimError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.answer.metrics import slo_of
from presim.serving.deployments.capacity import MOST_REQUESTS, OfferedLoad, load_of
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.deployment_ranking import outcome_of
from presim.serving.deployments.deployment_search import Space
from presim.serving.deployments.question import DeploymentQuestion
from presim.serving.model_lookup import find
from presim.serving.serving_plan import Cache, ServingPlan
from presim.serving.steps.times import build
from presim.serving.weight_types import typed
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.system.files import check_writable, decode_json, read_bytes, write_file
from presim.verbs.deploy import decide

_SYSTEMS = {"h100-sxm": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "a100-80gb-sxm": "a100_sxm", "l40s": "l40s"}
_NAMES = {"meta-llama/Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B"}  # of the same config in aiconfigurator's package
_LIMIT_S = 300  # of a call of aiconfigurator


@dataclasses.dataclass(frozen=True)
class Asked:
    """A question of the study."""

    model: str  # a repository id
    gpu: str
    gpus: int
    prompt: int
    output: int
    ttft: int  # ms, in the mean
    tpot: int

    @property
    def text(self) -> str:
        """In a cell of a table."""
        return (
            f"{self.model}, {self.gpus} {self.gpu}, {self.prompt:,} in, {self.output} out, {self.ttft} / {self.tpot} ms"
        )


_LLAMA, _DENSE, _EXPERTS, _LATENT = (
    "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3",
)  # fmt: skip
QUESTIONS = (
    Asked(_LLAMA, "h100-sxm", 1, 1000, 200, 500, 20),
    Asked(_LLAMA, "h100-sxm", 2, 4000, 500, 1000, 15),
    Asked(_LLAMA, "h200", 1, 8000, 200, 2000, 30),
    Asked(_LLAMA, "l40s", 1, 1000, 200, 1000, 50),
    Asked(_LLAMA, "l40s", 2, 2000, 400, 2000, 40),
    Asked(_LLAMA, "a100-80gb-sxm", 1, 1000, 500, 1000, 30),
    Asked(_LLAMA, "a100-80gb-sxm", 2, 3000, 300, 1000, 25),
    Asked(_LLAMA, "b200", 1, 2000, 500, 500, 10),
    Asked(_DENSE, "h100-sxm", 2, 2000, 300, 1000, 30),
    Asked(_DENSE, "h100-sxm", 4, 4000, 500, 1000, 20),
    Asked(_DENSE, "h200", 1, 1000, 500, 1000, 40),
    Asked(_DENSE, "h200", 4, 4000, 500, 1000, 20),
    Asked(_DENSE, "b200", 2, 4000, 500, 1000, 15),
    Asked(_EXPERTS, "h100-sxm", 2, 2000, 300, 1000, 25),
    Asked(_EXPERTS, "h200", 1, 4000, 500, 1000, 20),
    Asked(_EXPERTS, "h200", 4, 1000, 500, 500, 15),
    Asked(_EXPERTS, "b200", 2, 2000, 300, 500, 15),
    Asked(_LATENT, "h200", 8, 4000, 500, 2000, 50),
    Asked(_LATENT, "b200", 8, 2000, 500, 1000, 30),
    Asked(_LATENT, "h200", 16, 4000, 500, 2000, 40),
)


def load_for(asked: Asked) -> OfferedLoad:
    """Requests of fixed lengths at random times, and limits of means."""
    recipe = WorkloadRecipe(MOST_REQUESTS, Lengths(asked.prompt), Lengths(asked.output), rate=1.0)
    return load_of(generate(recipe), slo_of([f"ttft:{asked.ttft}@mean", f"tpot:{asked.tpot}@mean"]))


def row_of(asked: Asked, program: str) -> dict[str, Any]:
    """Both answers to a question, judged alike."""
    load = load_for(asked)
    begun = time.process_time()
    row: dict[str, Any] = {"asked": dataclasses.asdict(asked)}
    cache: Cache = "fp8" if find(asked.model).checkpoint.method else "bf16"  # as aiconfigurator takes it by itself
    space = Space((asked.gpu,), weights=(None,), caches=(cache,), most_gpus=asked.gpus)
    try:
        decision = decide(DeploymentQuestion(asked.model, space, load))
        best = decision.result.best
        row["presim"] = {"plan": best.deployment, "judged": best.tokens_per_s_per_gpu} if best else {"none": True}
    except PresimError as error:
        row["presim"] = {"problem": str(error)}
    row["presim"]["cpu_s"] = time.process_time() - begun
    row["aiconfigurator"] = _of_other(asked, load, program)
    return row


def _of_other(asked: Asked, load: OfferedLoad, program: str) -> dict[str, Any]:
    before = os.times()
    try:
        plans = _recommended(asked, program)
    except PresimError as error:
        return {"problem": str(error)}
    after = os.times()
    spent_s = after.children_user + after.children_system - before.children_user - before.children_system
    if not plans:
        return {"none": True, "cpu_s": spent_s}
    plan = max(plans, key=lambda plan: float(plan["tokens/s/gpu_cluster"]))
    try:
        point = _point(plan, asked)
    except PresimError as error:
        return {"problem": f"presim cannot build its plan: {error}", "cpu_s": spent_s}
    outcome = outcome_of(point, load, 0.0)
    figures = outcome.trial.figures if outcome.trial else {}
    return {
        "plan": point.name,
        "claimed": float(plan["tokens/s/gpu"]),
        "judged": outcome.per_gpu if outcome.verdict == "meets" else 0.0,
        "idle_ms": {name: figures.get(f"mean_{name}_ms") for name in ("ttft", "tpot")},
        "cpu_s": spent_s,
    }


def _recommended(asked: Asked, program: str) -> list[dict[str, str]]:
    """The first plan of each kind that aiconfigurator writes, within its limits."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            program,
            "cli",
            "default",
            "--model-path",
            _NAMES.get(asked.model, asked.model),
            "--total-gpus",
            str(asked.gpus),
        ]
        words += ["--system", _SYSTEMS[asked.gpu], "--backend", "vllm", "--isl", str(asked.prompt)]
        words += ["--osl", str(asked.output), "--ttft", str(asked.ttft), "--tpot", str(asked.tpot), "--strict-sla"]
        try:
            ended = subprocess.run(
                [*words, "--save-dir", folder], capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(
                f"{program} cannot be run: {error}; give the program of aiconfigurator's package"
            ) from error
        tables = sorted(Path(folder).rglob("best_config_topn.csv"))
        if not tables and ended.returncode:
            lines = [line for line in ended.stderr.splitlines() if "rror" in line] or ["it printed no error"]
            raise InputError(f"aiconfigurator ends with {ended.returncode}: {lines[-1][:160]}")
        return [plan for table in tables for plan in list(csv.DictReader(table.read_text().splitlines()))[:1]]


def _point(plan: dict[str, str], asked: Asked) -> DeploymentPoint:
    """A plan of aiconfigurator's as presim's, with the limits of the files that it writes."""
    is_apart = "(p)tp" in plan
    first, then = ("(p)", "(d)") if is_apart else ("", "")
    model = find(asked.model)

    def engine(mark: str) -> Any:
        batch = int(float(plan[f"{mark}bs"]))
        fields = ServingPlan(
            tp=int(plan[f"{mark}tp"]),
            pp=int(plan[f"{mark}pp"]),
            dp=int(plan[f"{mark}dp"]) if model.experts else 1,
            ep=int(plan[f"{mark}moe_ep"]) > 1,
            cache="fp8" if plan[f"{mark}kvcache"] == "fp8" else "bf16",
            max_num_seqs=max(512, 2 * batch),
            max_num_batched_tokens=asked.prompt + 1500 + batch,
            max_model_len=asked.prompt + asked.output + 1500,
        )
        typed_plan = typed(fields, model, None, None)
        cluster = choose_cluster(gpu=asked.gpu, world_size=typed_plan.gpus)
        return build(model, typed_plan, cluster)

    decode, prefill = engine(then), engine(first) if is_apart else None
    replicas = int(plan["(d)workers"]) if is_apart else 1
    prefills = int(plan["(p)workers"]) if is_apart else 0
    gpus = decode.plan.gpus * replicas + (prefill.plan.gpus * prefills if prefill else 0)
    tokens = float(plan["tokens/s/gpu"]) * gpus
    times = float(plan["ttft"]), float(plan["tpot"])
    return DeploymentPoint(decode, 1, replicas, prefills, *times, tokens, gpus, asked.output, prefill)


def page(rows: list[dict[str, Any]], date: str) -> str:
    """The rows as a page."""
    both = [row for row in rows if row["presim"].get("judged") and row["aiconfigurator"].get("plan")]
    ratios = sorted(row["aiconfigurator"]["judged"] / row["presim"]["judged"] for row in both)
    behind = sum(ratio < 0.95 for ratio in ratios)
    ahead = sum(ratio > 1.05 for ratio in ratios)
    cpu_s, other_s = (sorted(row[tool][key] for row in rows if key in row[tool]) for tool, key in _TIMES)
    lines = [
        "# Deployments of presim and of aiconfigurator",
        "",
        f"{len(rows)} of {len(QUESTIONS)} questions were asked to `presim deploy` and to aiconfigurator 0.12.0 "
        "(`cli default`, backend vllm, `--strict-sla`), with limits of mean TTFT and TPOT. Both answers are judged by "
        "presim's simulator: the largest rate of random arrivals within the limits. The judge is presim's own, so this "
        "shows what the rules of the searches lose, not whose times are nearer to an engine's; "
        "[measured runs](serving.md) show that.",
        "",
        f"- Both name a plan for {len(both)} questions. aiconfigurator's serves at least 5 % less for {behind} of "
        f"them, and at least 5 % more for {ahead}.",
        "- Where a plan of aiconfigurator's serves 0, it misses the limits for a lone request by presim's times, or "
        "has no steady state: aiconfigurator takes a constant number of requests in flight, the judge random arrivals.",
        "- Both use the type of KV cache that aiconfigurator takes by itself: FP8 for FP8 checkpoints, else bf16.",
        f"- presim takes {_middle(cpu_s):.0f} s of CPU time in the median, aiconfigurator {_middle(other_s):.0f} s.",
        "- aiconfigurator also answers for models with encoders, which `presim deploy` does not search.",
        "",
        "Tokens/s per GPU. Limits: mean TTFT / mean TPOT.",
        "",
        "| question | presim's plan | serves | aiconfigurator's plan | claims | serves |",
        "|---|---|---:|---|---:|---:|",
    ]
    for row in rows:
        mine, other = row["presim"], row["aiconfigurator"]
        cells = [Asked(**row["asked"]).text, _plan(mine), _number(mine, "judged")]
        cells += [_plan(other), _number(other, "claimed"), _number(other, "judged")]
        lines.append(f"| {' | '.join(cells)} |")
    if len(rows) < len(QUESTIONS):
        lines += ["", "The other questions are not yet asked: the same call goes on with them."]
    return "\n".join([*lines, "", f"Made on {date} by `validation/deploy_study.py`.", ""])


_TIMES = (("presim", "cpu_s"), ("aiconfigurator", "cpu_s"))


def _middle(values: list[float]) -> float:
    return values[len(values) // 2] if values else 0.0


def _plan(answer: dict[str, Any]) -> str:
    return str(answer.get("plan") or answer.get("problem") or "none within the limits").replace("|", "/")


def _number(answer: dict[str, Any], key: str) -> str:
    return f"{answer[key]:,.0f}" if key in answer else ""


def main(arguments: list[str]) -> None:
    """Ask what is not yet answered, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiconfigurator", required=True, help="aiconfigurator's program")
    parser.add_argument("--rows", type=Path, required=True, help="JSON of answers, which is added to")
    parser.add_argument("--out", type=Path, required=True, help="the page")
    parser.add_argument("--seconds", type=float, default=3600.0, help="ask no further question after that time")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="that the page names")
    options = parser.parse_args(arguments)
    check_writable(options.out)
    check_writable(options.rows)
    if not Path(options.aiconfigurator).is_file():
        raise InputError(
            f"there is no program {options.aiconfigurator}: install aiconfigurator into an environment of its own"
        )
    rows = decode_json(read_bytes(options.rows, "name a new file")) if options.rows.is_file() else []
    begun = time.monotonic()
    for asked in QUESTIONS:
        if time.monotonic() - begun > options.seconds or dataclasses.asdict(asked) in [row["asked"] for row in rows]:
            continue
        rows.append(row_of(asked, options.aiconfigurator))
        write_file(options.rows, (json.dumps(rows, indent=1, sort_keys=True) + "\n").encode())
        print(asked.text, json.dumps(rows[-1], sort_keys=True)[:600], flush=True)
    write_file(options.out, page(rows, options.date).encode())


if __name__ == "__main__":
    with sentences():
        main(sys.argv[1:])
