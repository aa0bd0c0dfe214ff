"""Compares published steps of reinforcement learning with `presim rl` of the same jobs, phase by phase.

    python validation/rl_steps.py TABLE [--only ID,ID...] [--page] [--routing zipf:1]

TABLE has one published run a row. What a row's recipe says beside its columns stands in `RECIPES`, with its source.
Responses of a row have the published mean and, as none gives more, a log-normal spread. Writes `results/rl-steps.md`
and `.json`; rows that are there and that ``--only`` does not name stay. ``--page`` predicts nothing and writes the page
of the rows that are there. With ``--routing`` the phases of rows are printed and nothing is written.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.errors import InputError, PresimError
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.build import Built, build_job
from presim.post_training.rl_answer import RlAnswer, answer
from presim.post_training.rl_job import Placement, pool_of
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.post_training.weights import weight_sync
from presim.serving.defaults import with_defaults
from presim.serving.model_lookup import find
from presim.serving.steps.times import build
from presim.studies.validation.case_tables import read_table
from presim.system.files import write_file

RESULT = Path(__file__).parent / "results" / "rl-steps.md"
ROWS = RESULT.with_suffix(".json")
_COLUMNS = ("id", "model", "gpu", "n_gpus", "mode", "step_time_s", "rollout_time_s", "mean_response_len", "note")
PROMPT = 200  # tokens of a question of mathematics, where no figure of the row says
# Standard deviation / mean of responses before they are cut: no row says, so this is assumed. Incorrect answers are
# three times as long as correct ones (DeepScaleR's report), which alone gives about 0.4 if a quarter is correct.
SPREAD = 0.7
# Share of the variance of log-lengths that lies between prompts: assumed, too. Responses to one prompt are alike in
# length (Seer, arXiv 2511.14617), but we know of no figure.
GROUP_SHARE = 0.5
_MODELS = {
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "DeepSeek V3": "deepseek-v3",
    "DeepSeek-R1-Distill-Qwen-7B": "qwen2.5-7b",
    "DeepSeek-R1-Distill-Qwen-1.5B": str(Path(__file__).parent / "rl_models" / "deepseek-r1-distill-qwen-1.5b"),
    "Qwen2.5-7B": "qwen2.5-7b",
    "Qwen2.5-72B": "qwen2.5-72b",
    "Qwen3-4B": "qwen3-4b",
}
_GPUS = {"H100 SXM 80GB": ("h100-sxm", 8), "GB200 (NVL72)": ("gb200", 4), "H20 96GB": ("h20", 8)}
_NEMO = "NVIDIA-NeMo/RL, examples/configs/recipes/llm/performance, commit 7ea279ab"
_MEGATRON = {
    "dp_style": "zero1", "recompute": "none", "micro_tokens": 4096, "logprob_tokens": 8192, "old_logprobs": False,
    "reference": True, "cp": 1, "transfer": "packed", "logits": "nemo-rl-megatron", "vllm_start": "async-llm",
}  # fmt: skip
_SHARE = {"engine": {"gpu_memory_utilization": 0.8}}
_RAY = {"async_scheduling": False}  # vLLM in Ray, as NeMo RL starts engines of several GPUs
_OFF_POLICY = {"placement": "separate", "staleness": 1.0, "partial": True, **_SHARE}
_GRAPHS = {"graph_tokens": 64}
_COLOCATED = {"offload": ("parameters", "optimizer", "reference")}
# 8,192 tokens over two ranks; pipelines get packs of one size (nemo_rl/models/megatron/data.py)
_LARGE = {**_MEGATRON, "recompute": "full", "cp": 2, "logprob_tokens": 4096, "pads": True}
# Ranks of engines generate their parts of a batch whose prompts are repeated one by one (trainer/ppo/ray_trainer.py).
# Four steps are averaged: which prompts meet on an engine decides the longest part.
_VERL = {"controller": "verl", "assignment": "consecutive", "steps": 4}
# id: fields of the request, and where they are from
RECIPES: dict[str, tuple[dict[str, Any], str]] = {
    "nemorl-0.7-07": (
        {**_MEGATRON, **_OFF_POLICY, "prompts": 64, "samples": 32, "rollout_gpus": 16, "pads": True}, _NEMO
    ),
    "nemorl-0.7-08": (
        {
            **_MEGATRON, **_OFF_POLICY, "staleness": 8.0, "prompts": 64, "samples": 32, "mini_batch": 16,
            "rollout_gpus": 64, "old_logprobs": True,
        },
        _NEMO,
    ),
    "nemorl-0.7-09": (
        {
            **_MEGATRON, **_OFF_POLICY, "prompts": 64, "samples": 32, "rollout_gpus": 32, "logprob_tokens": 16384,
            "pads": True,
        },
        _NEMO,
    ),
    "nemorl-0.7-18": (
        {
            **_LARGE, **_COLOCATED, "prompts": 16, "samples": 32,
            "engine": {**_GRAPHS, "gpu_memory_utilization": 0.4},
        },
        _NEMO,
    ),
    "nemorl-0.7-19": (
        {
            **_LARGE, **_COLOCATED, "prompts": 16, "samples": 32,
            "engine": {**_GRAPHS, "gpu_memory_utilization": 0.6},
        },
        _NEMO,
    ),
    "nemorl-0.7-22": ({**_MEGATRON, **_OFF_POLICY, "prompts": 64, "samples": 32, "rollout_gpus": 8}, _NEMO),
    "nemorl-0.7-23": (
        {**_MEGATRON, **_OFF_POLICY, "prompts": 64, "samples": 32, "rollout_gpus": 16, "logprob_tokens": 16384}, _NEMO
    ),
    # 512 responses are 128 for each of four data-parallel ranks: log-probabilities of 52,636 tokens/s/GPU for 17.51 s
    # are 512 samples of 14,404 tokens, of which 149 are a prompt's. 20 of 28 blocks recompute.
    "rlinf-1.5b-1": (
        {
            **_COLOCATED, "prompts": 32, "samples": 16, "dp_style": "zero1", "cp": 1, "micro_sequences": 1,
            "mini_batch": 8, "logits": "verl-megatron", "fusions": ("norm",), "reference": False, "prompt_tokens": 149,
            **_VERL, "sglang_release": "0.4.6", "engine": {"kernels": "sglang", "gpu_memory_utilization": 0.55},
        },
        "RLinf/RLinf, compare_with_verl.rst; updates and share of memory as in its qwen2.5-1.5b-grpo-megatron.yaml",
    ),
    "rlinf-verl-7b-64": (
        {
            **_COLOCATED, "prompts": 128, "samples": 16, "mini_batch": 32, "cp": 4, "micro_tokens": 30000,
            "reference": True, "prompt_tokens": 149, **_VERL, "sglang_release": "0.4.6",
            "engine": {"kernels": "sglang", "gpu_memory_utilization": 0.4},
        },
        "RLinf/RLinf, compare_with_verl.rst, its verl command; prompts of the same data set as rlinf-1.5b-1",
    ),
}  # fmt: skip
_HELD_SHARE = 0.85  # of steps of sources that are left out, which the interval has to hold
_SOURCES = {"nemorl": "NeMo RL", "rlinf": "verl, published by RLinf"}
_FITTED = ("weight_sync_time_s",)  # the speed of transfers rests on these figures (weight_syncs.py)
PHASES = {  # column: phase of an answer, and the controller's seconds beside it, which the framework's timer has, too
    "rollout_time_s": ("rollout", "rollout_s"),
    "logprob_time_s": ("old log-probabilities", "old_s"),
    "ref_logprob_time_s": ("reference log-probabilities", "reference_s"),
    "train_time_s": ("update", "update_s"),
}


class CannotPredictError(PresimError):
    """A row does not say enough, or presim lacks its model or GPU."""


@dataclasses.dataclass(frozen=True)
class Compared:
    """A figure of a row."""

    figure: str
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Relative error, signed."""
        return self.predicted_s / self.measured_s - 1


def request_of(row: Mapping[str, str]) -> RlRequest:
    """The request of a row.

    Raises:
        CannotPredictError: its batch or its lengths are not known, or presim lacks the model.
    """
    if row["id"] not in RECIPES:
        reason = row["confidence"].partition(":")[2].strip()
        if not reason:
            _model(row)
        raise CannotPredictError(reason or "its engines draft tokens, and no figure says how many are accepted")
    fields = dict(RECIPES[row["id"]][0])
    degrees: dict[str, Any] = {name: int(row[f"train_{name}"]) for name in ("tp", "pp", "ep") if row[f"train_{name}"]}
    engine = {"tp": int(row["rollout_tp"]), **fields.pop("engine", {})}
    if row["framework"] == "NeMo RL" and engine["tp"] > 1:
        engine |= _RAY
    longest = int(row["max_response_len"] or row["max_seq_len"])
    prompt = fields.pop("prompt_tokens", PROMPT)
    mean = float(row["mean_response_len"] or _sequence(row) - prompt)
    longest -= 0 if row["max_response_len"] else prompt
    response = f"lognormal:mean={mean:.0f},cv={SPREAD},max={longest},group={GROUP_SHARE}"
    return RlRequest(
        model=_model(row), prompt_tokens=str(prompt), response=response, engine=engine, force=True, **degrees, **fields,
    )  # fmt: skip


def _model(row: Mapping[str, str]) -> str:
    name = row["model"].partition(" (")[0]
    if name not in _MODELS:
        raise CannotPredictError(f"presim has no training graph of {name}")
    return _MODELS[name]


def _sequence(row: Mapping[str, str]) -> float:
    match = re.search(r"Average seq len \(prompt\+response\) (\d+)", row["note"])
    if match is None:
        raise CannotPredictError("mean length not given")
    return float(match[1])


def _refusal(row: Mapping[str, str]) -> None:
    """Raise CannotPredictError for a transfer by a trainer that is not simulated."""
    if "veomni" in row["model"]:
        raise CannotPredictError("its trainer, veomni, is not simulated")


def cluster_of(row: Mapping[str, str]) -> Any:
    """The cluster of a row; raises CannotPredictError for a GPU that presim lacks."""
    kind = next((names for text, names in _GPUS.items() if row["gpu"].startswith(text)), None)
    if kind is None:
        raise CannotPredictError(f"its GPU is given as {row['gpu']!r}")
    gpu, per_node = kind
    gpus = int(row["n_gpus"])
    return choose_cluster(gpu=gpu, nodes=max(gpus // per_node, 1), gpus_per_node=min(per_node, gpus))


def predict(row: Mapping[str, str], routing: str = "balanced") -> tuple[Built, RlAnswer]:
    """The job of a row with experts chosen as ``routing`` says, and its answer.

    Raises:
        InputError: presim refuses the job.
    """
    built = build_job(dataclasses.replace(request_of(row), routing=routing), cluster_of(row))
    return built, answer(built, simulate(built.job, built.prices))


def compare(row: Mapping[str, str]) -> list[Compared]:
    """The figures that a row gives, measured and predicted.

    Raises:
        CannotPredictError: it does not say enough.
        InputError: presim refuses the job.
    """
    if row["mode"].startswith("weight sync"):
        _refusal(row)
        return [Compared("weight_sync_time_s", _middle(row["weight_sync_time_s"]), _sync_s(row))]
    built, predicted = predict(row)
    figures = [Compared("step_time_s", float(row["step_time_s"]), predicted.figures.step_time_s)]
    if row["weight_sync_time_s"]:
        figures.append(Compared("weight_sync_time_s", _middle(row["weight_sync_time_s"]), built.prices.sync.seconds))
    return figures + [
        Compared(column, float(row[column]), _phase_s(predicted, phase) + getattr(built.prices.controller, controller))
        for column, (phase, controller) in PHASES.items()
        if row[column]
    ]


def _middle(text: str) -> float:
    return statistics.mean(float(part) for part in text.split("-"))


def _phase_s(predicted: RlAnswer, name: str) -> float:
    return sum(phase.seconds for phase in predicted.phases if phase.phase == name)


def _sync_s(row: Mapping[str, str]) -> float:
    """A transfer between separate pools; a row without the GPU is taken on H100."""
    gpu = "h20" if row["gpu"].startswith("H20") else "h100-sxm"
    gpus, train = int(row["n_gpus"]), int(row["n_gpus_train"])
    cluster = choose_cluster(gpu=gpu, nodes=gpus // 8, gpus_per_node=8)
    model = find(_model(row))
    degree = 8 if model.parameters > 5e10 else 2
    plan = with_defaults({"tp": degree, "max_model_len": 4096}, model, cluster.gpu)
    engine = build(model, plan, pool_of(cluster, plan.gpus, "engine's"))
    return weight_sync(model, engine, cluster, Placement(train, gpus - train, is_colocated=False)).seconds


def _page(rows: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["# Published steps of reinforcement learning", "", *_summary(rows), ""]
    lines += ["| run | figure | measured | predicted | error |", "|---|---|---|---|---|"]
    for name, row in sorted(rows.items()):
        for figure in row.get("figures", []):
            measured_s, predicted_s = figure["measured_s"], figure["predicted_s"]
            lines.append(
                f"| {name} | {figure['figure'].removesuffix('_s').replace('_', ' ')} | {measured_s:.4g} s | "
                f"{predicted_s:.4g} s | {predicted_s / measured_s - 1:+.0%} |"
            )
    latest = max(row.get("date", "") for row in rows.values())
    if earlier := [name for name, row in sorted(rows.items()) if row.get("date", "") < latest]:
        lines += ["", f"Predicted by an earlier version: {', '.join(earlier)}."]
    lines += _intervals(rows)
    missing = [f"- {name}: {row['reason']}" for name, row in sorted(rows.items()) if "reason" in row]
    return "\n".join([*lines, "", "## Rows without a prediction", "", *missing, ""])


def ratios_by_source(rows: Mapping[str, Any]) -> dict[str, list[float]]:
    """Measured / predicted steps of each source, by the first word of a row's id."""
    ratios: dict[str, list[float]] = {}
    for name, row in sorted(rows.items()):
        for figure in row.get("figures", []):
            if figure["figure"] == "step_time_s":
                source = name.partition("-")[0]
                ratios.setdefault(source, []).append(figure["measured_s"] / figure["predicted_s"])
    return ratios


def interval_of(ratios: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest ratio, without the farthest from 1 where three or more are there."""
    kept = sorted(ratios, key=lambda ratio: abs(math.log(ratio)))
    kept = kept[:-1] if len(kept) > 2 else kept
    return min(kept), max(kept)


def held_out(ratios: Mapping[str, Sequence[float]], widening: float) -> dict[str, int]:
    """Of each source, how many ratios lie in the interval of the other sources, widened by a factor."""
    inside = {}
    for source, values in ratios.items():
        others = [ratio for other, found in ratios.items() if other != source for ratio in found]
        low, high = interval_of(others)
        inside[source] = sum(low / widening <= ratio <= high * widening for ratio in values)
    return inside


def _intervals(rows: Mapping[str, Any]) -> list[str]:
    """What the interval of a step rests on: whole sources are left out."""
    ratios = ratios_by_source(rows)
    count = sum(map(len, ratios.values()))
    needed = math.ceil(_HELD_SHARE * count)
    widening = next(
        factor for factor in (1 + step / 100 for step in range(400)) if sum(held_out(ratios, factor).values()) >= needed
    )
    low, high = interval_of([ratio for values in ratios.values() for ratio in values])
    lines = [
        "", "## Interval of a step", "",
        "The interval of some sources is from their smallest to their largest measured / predicted step, without the",
        f"farthest from 1. Widened by {widening:.2f}, those of the other sources hold {needed} of {count} steps of a "
        "source",
        f"that is left out. All sources give {low / widening:.2f} to {high * widening:.2f} times the prediction, the "
        "interval of `presim rl`.",
        "", "| source left out | interval of the others | held | held without widening |", "|---|---|---|---|",
    ]  # fmt: skip
    plain, widened = held_out(ratios, 1.0), held_out(ratios, widening)
    for source, values in ratios.items():
        others = [ratio for other, found in ratios.items() if other != source for ratio in found]
        low, high = interval_of(others)
        name, total = _SOURCES[source], len(values)
        lines.append(
            f"| {name} | {low / widening:.2f} to {high * widening:.2f} | {widened[source]} of {total} | "
            f"{plain[source]} of {total} |"
        )
    return [*lines, "", "verl's own tables and Miles give no step whose batch and lengths are known."]


def _summary(rows: Mapping[str, Any]) -> list[str]:
    errors: dict[str, list[float]] = {}
    for row in rows.values():
        for figure in row.get("figures", []):
            if figure["figure"] in _FITTED:
                continue
            errors.setdefault(figure["figure"], []).append(figure["predicted_s"] / figure["measured_s"] - 1)
    lines = [
        f"{datetime.date.today()}, by `python validation/rl_steps.py TABLE` on {os.cpu_count()} cores without a GPU:",
        "published steps of NeMo RL and verl beside predictions of their recipes. A row gives the mean length of its",
        f"responses and not their spread: a log-normal of deviation / mean {SPREAD} before it is cut at the longest",
        f"response is assumed, {GROUP_SHARE:.0%} of whose log's variance lies between prompts, and prompts of",
        f"{PROMPT} tokens where no throughput says how long they are. So no error is of the simulation alone. Rows",
        "without any length are kept apart below. Two things rest on these figures: transfers of weights parameter by",
        "parameter, judged [without their sources](weight-syncs.md), and the speed of SGLang 0.4.6, of both rollouts,",
        "judged [without the rollout](sglang-rollouts.md).",
        "",
        "| figure | rows | median absolute error | median error |",
        "|---|---|---|---|",
    ]
    for figure, values in sorted(errors.items()):
        absolute = statistics.median(abs(value) for value in values)
        name = figure.removesuffix("_s").replace("_", " ")
        lines.append(f"| {name} | {len(values)} | {absolute:.0%} | {statistics.median(values):+.0%} |")
    return lines


def main() -> None:
    """Predict the rows and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--page", action="store_true", help="write the page of the rows that are there")
    parser.add_argument("--routing", help="experts that tokens choose, as presim rl --routing")
    parser.add_argument("--only", default="", help="ids, separated by commas")
    arguments = parser.parse_args()
    table = read_table(Path(arguments.table), _COLUMNS, "a published step of reinforcement learning has")
    if arguments.page:
        write_file(RESULT, _page(json.loads(ROWS.read_text())).encode())
        return
    names = set(filter(None, arguments.only.split(",")))
    if unknown := sorted(names - {row["id"] for row in table}):
        raise InputError(f"the table has no row {unknown[0]!r}")
    results = json.loads(ROWS.read_text()) if ROWS.exists() and names else {}
    for row in table:
        if names and row["id"] not in names:
            continue
        if arguments.routing:
            phases = predict(row, arguments.routing)[1].phases
            print(row["id"], {phase.phase: round(phase.seconds, 1) for phase in phases}, flush=True)
            continue
        try:
            results[row["id"]] = {"figures": [dataclasses.asdict(figure) for figure in compare(row)]}
        except (CannotPredictError, InputError) as error:
            results[row["id"]] = {"reason": str(error)}
        results[row["id"]]["date"] = f"{datetime.date.today()}"
        print(row["id"], results[row["id"]], flush=True)
    if arguments.routing:
        return
    write_file(ROWS, (json.dumps(results, indent=2, sort_keys=True) + "\n").encode())
    write_file(RESULT, _page(results).encode())


if __name__ == "__main__":
    with sentences():
        main()
