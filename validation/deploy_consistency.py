"""Whether the deployment named best is best under simulation, and whether a plan called a miss meets the SLO.

    python validation/deploy_consistency.py --rows rows.json --out deploy-consistency.md

Every plan of a question's space is simulated at 1.05 times what the best serves per GPU: where one of them meets the
SLO, the best is more than 5 % behind. ``--rows`` keeps what is answered, and the same call goes on from there;
``--seconds`` ends it between two questions.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.serving.answer.metrics import slo_of
from presim.serving.deployments import deployment_ranking
from presim.serving.deployments.capacity import IDLE, MOST_REQUESTS, OfferedLoad, load_of, trial
from presim.serving.deployments.deployment_point import DeploymentPoint, excess
from presim.serving.deployments.deployment_search import Found, Space, search
from presim.serving.deployments.rates import STEADY, sustainable_rate
from presim.serving.model_lookup import find
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.system.files import check_writable, decode_json, read_bytes, write_file

BEHIND = 1.05  # of the best's tokens/s per GPU: no other plan may serve as much


@dataclasses.dataclass(frozen=True)
class Question:
    """A model, GPUs, fixed lengths and an SLO."""

    model: str
    gpu: str
    gpus: int
    prompt: int
    output: int
    slo: str

    @property
    def text(self) -> str:
        """In a cell of a table."""
        return f"{self.model}, {self.gpus} {self.gpu}, {self.prompt:,} in, {self.output} out, {self.slo}"

    def asked(self) -> tuple[Found, OfferedLoad]:
        """The estimated plans, and the load."""
        slo = slo_of(self.slo.split())
        space = Space((self.gpu,), budgets=(8192,), most_gpus=self.gpus)
        workload = generate(WorkloadRecipe(MOST_REQUESTS, Lengths(self.prompt), Lengths(self.output), rate=1.0))
        return search(find(self.model), space, self.prompt, self.output, slo), load_of(workload, slo)


QUESTIONS = (
    Question("llama3-8b", "l40s", 1, 1024, 256, "ttft:1000 tpot:50"),
    Question("llama3-8b", "l40s", 2, 4000, 200, "ttft:3000 tpot:60@mean"),
    Question("llama3-8b", "a100-80gb-sxm", 2, 2000, 400, "ttft:500 tpot:25"),
    Question("llama3-8b", "h100-sxm", 2, 512, 128, "ttft:200 tpot:15"),
    Question("qwen3-8b", "h100-sxm", 4, 1024, 512, "ttft:300 tpot:10@mean"),
    Question("qwen3-32b", "h100-sxm", 2, 2000, 300, "ttft:1000 tpot:40"),
    Question("qwen3-32b", "h200", 4, 4000, 500, "ttft:1000@mean tpot:20@mean"),
    Question("qwen3-32b", "b200", 2, 1024, 256, "tpot:15"),
    Question("llama3-70b", "h100-sxm", 4, 1024, 256, "ttft:1000 tpot:40"),
    Question("llama3-70b", "b200", 4, 2048, 256, "ttft:600 tpot:20"),
    Question("llama3-70b", "h200", 8, 4000, 500, "ttft:2000@mean tpot:30@mean"),
    Question("qwen3-30b-a3b", "h200", 2, 1024, 256, "ttft:500@mean tpot:50"),
    Question("qwen3-30b-a3b", "b200", 2, 2048, 256, "ttft:300 tpot:15"),
    Question("qwen3-30b-a3b", "h100-sxm", 4, 512, 256, "ttft:300 tpot:20@p90"),
    Question("gpt-oss-120b", "h100-sxm", 2, 2048, 512, "ttft:1000 tpot:20"),
    Question("qwen3-235b-a22b", "h200", 8, 1024, 256, "ttft:1000 tpot:40"),
    Question("qwen3-next-80b-a3b", "h200", 2, 4000, 200, "ttft:2000 tpot:30"),
    Question("deepseek-v2-lite", "l40s", 2, 1024, 256, "ttft:1000 tpot:40"),
    Question("deepseek-v3", "h200", 16, 2048, 256, "ttft:2000 tpot:50"),
    Question("deepseek-v3", "b200", 64, 1024, 256, "ttft:1500 tpot:40@mean"),
)


def row_of(question: Question) -> dict[str, Any]:
    """The best, the plans that serve more than 5 % more, and those that meet an SLO which they are said to miss."""
    begun = time.process_time()
    found, load = question.asked()
    ranked = deployment_ranking.rank(found, load)
    points = [
        min(plan, key=lambda point: abs(excess(point, load.slo) - 1))
        for plan in deployment_ranking.plans_of(found.points)
    ]
    best = ranked.best
    missing = {outcome.point.name for outcome in ranked.outcomes if outcome.verdict == "misses"}
    ahead, contradicted = [], []
    for point in points:
        if best is not None and best.point.name != point.name and _serves(point, load, BEHIND * best.per_gpu):
            ahead.append(point.name)
        if (best is None or point.name in missing) and _serves(point, load, None):
            contradicted.append(point.name)
    return {
        "asked": dataclasses.asdict(question),
        "best": best.point.name if best else None,
        "per_gpu": best.per_gpu if best else None,
        "plans": len(points),
        "simulated": len(ranked.outcomes),
        "ahead": ahead,
        "contradicted": contradicted,
        "cpu_s": time.process_time() - begun,
    }


def _serves(point: DeploymentPoint, load: OfferedLoad, per_gpu: float | None) -> bool:
    """Whether a plan meets the SLO at so many tokens/s per GPU, and sustains them; None: at the lowest load.

    A plan may meet it at a load from which it would not recover: a burst beyond the largest CUDA graph slows its steps.
    """
    stay_s = (point.ttft_ms + load.output * point.tpot_ms) / 1e3
    rate = IDLE / stay_s if per_gpu is None else per_gpu * point.gpus / load.output
    deployment = deployment_ranking.deployment_of(point)
    if not trial(deployment, load, rate, stay_s).meets:
        return False
    sustained = sustainable_rate(deployment, load.workload)
    return sustained is None or rate <= STEADY * sustained


def page(rows: list[dict[str, Any]], date: str) -> str:
    """The rows as a page."""
    behind = sum(bool(row["ahead"]) for row in rows)
    contradicted = sum(bool(row["contradicted"]) for row in rows)
    seconds = sorted(row["cpu_s"] for row in rows)
    lines = [
        "# The deployment named best, against all others",
        "",
        f"{len(rows)} of {len(QUESTIONS)} questions were asked. Every plan of a question was simulated at 1.05 times "
        "what the best serves per GPU, whatever its estimate. A load counts as served up to 98 % of what a plan "
        "sustains.",
        "",
        f"- The best is more than 5 % behind another plan for {behind} questions.",
        f"- A plan that is said to miss the SLO meets it for {contradicted} questions.",
        f"- A question takes {seconds[len(seconds) // 2]:.0f} s of CPU time in the median, all {sum(seconds):.0f} s.",
        "",
        "| question | best | tokens/s/GPU | plans | simulated | more than 5 % ahead | called a miss, meets |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    for row in rows:
        cells = [Question(**row["asked"]).text, row["best"] or "none"]
        cells += [f"{row['per_gpu'] or 0:,.0f}", str(row["plans"]), str(row["simulated"])]
        cells += ["; ".join(row["ahead"]) or "none", "; ".join(row["contradicted"]) or "none"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Made on {date} by `validation/deploy_consistency.py`.", ""])


def main(arguments: list[str]) -> None:
    """Ask what is not yet answered, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="JSON of answers, which is added to")
    parser.add_argument("--out", type=Path, required=True, help="the page")
    parser.add_argument("--seconds", type=float, default=3600.0, help="ask no further question after that time")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="that the page names")
    options = parser.parse_args(arguments)
    check_writable(options.out)
    check_writable(options.rows)
    rows = decode_json(read_bytes(options.rows, "name a new file")) if options.rows.is_file() else []
    begun = time.monotonic()
    for question in QUESTIONS:
        is_answered = dataclasses.asdict(question) in [row["asked"] for row in rows]
        if time.monotonic() - begun > options.seconds or is_answered:
            continue
        rows.append(row_of(question))
        write_file(options.rows, (json.dumps(rows, indent=1, sort_keys=True) + "\n").encode())
        print(question.text, json.dumps(rows[-1], sort_keys=True)[:600], flush=True)
    write_file(options.out, page(rows, options.date).encode())


if __name__ == "__main__":
    with sentences():
        main(sys.argv[1:])
