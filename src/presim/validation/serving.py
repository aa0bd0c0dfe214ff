"""Compares predicted TTFT, TPOT and throughput with published serving runs (``presim validate --kind serving``).

A row says ``model``, ``gpu``, ``isl``, ``osl``, ``concurrency`` or ``num_prompts``, and the plan: ``tp``, ``pp``,
``attn_dp``, ``moe_ep``, ``gemm_quant``, ``moe_quant``; rows of mode ``disagg`` say it of prefill and decode workers.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from presim.errors import InputError, PresimError
from presim.files import write_file
from presim.hardware.choose import choose_cluster
from presim.serving.answer import metrics
from presim.serving.answer.intervals import intervals
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate import simulate
from presim.serving.model import Model, find
from presim.serving.plan import Kernels, Plan, Weights
from presim.serving.steps.times import Engine, build
from presim.serving.workloads.generate import Lengths, Recipe, generate

# Requests of a run, as InferenceMAX's scripts send them: ten for each in flight (InferenceX, benchmarks/*.sh).
_ROUNDS, _MOST_REQUESTS = 10, 4000
_RANGE = 0.8
_PAIRS = ((1024, 1024), (1024, 8192), (8192, 1024))
_LONGER = 1.0  # room in the model's length beside isl + osl
_WEIGHTS: dict[str, Weights] = {
    "": "bf16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "fp4": "fp4",
    "nvfp4": "fp4",
}
_HOST = 8  # GPUs of one host
_KERNELS: dict[str, Kernels] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "nim": "trtllm"}
FIGURES = {
    "ttft": ("ttft_mean_ms", "ttft_median_ms"),
    "tpot": ("tpot_mean_ms", "tpot_median_ms"),
    "throughput": ("output_tok_s",),
}
_GOALS = {"tpot": 0.08, "ttft": 0.15, "throughput": 0.08}
_PREDICTED = (*(f"predicted_{name}{end}" for name in FIGURES for end in ("", "_low", "_high")), "reason")
Row = Mapping[str, str]


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; name a table of published runs") from error
    if not rows or "isl" not in rows[0] or "osl" not in rows[0]:
        raise InputError(f"{path} has no columns isl and osl; docs/guide/serving.md lists what a table of runs has")
    return rows


def predict(rows: Iterable[Row], say: Callable[[str], None] = lambda text: None) -> list[dict[str, str]]:
    """Each row with what presim predicts, or the reason why it does not."""
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            said = {key: f"{value:.6g}" for key, value in predict_row(row).items()}
        except PresimError as error:
            said = {"reason": str(error)}
        found.append({**row, **dict.fromkeys(_PREDICTED, ""), **said})
        say(f"{number}: {row.get('id', '')}")
    return found


def predict_row(row: Row) -> dict[str, float]:
    """TTFT and TPOT in ms and output tokens a second, with the ends of their 80 % intervals."""
    deployment = _disaggregated(row) if row.get("mode") == "disagg" else _aggregated(row)
    requests, concurrency, prompt, output = _load(row)
    workload = generate(
        Recipe(requests, _lengths(row, prompt), _lengths(row, output), concurrency=concurrency, rate=_rate(row), seed=0)
    )
    kind = "mean" if row.get("ttft_mean_ms") or row.get("tpot_mean_ms") else "median"
    width = min(1.2816 * deployment.engine.uncertainty, 0.9)
    middle, low, high = (
        metrics.bench(simulate(workload, deployment.fleet(1 + sign * width, 1 + 0.5 * sign))) for sign in (0, -1, 1)
    )
    ends = intervals(middle, low, high, calibrated=False)
    found: dict[str, float] = {}
    for name, key in (("ttft", f"{kind}_ttft_ms"), ("tpot", f"{kind}_tpot_ms"), ("throughput", "output_throughput")):
        found[f"predicted_{name}"] = middle[key]
        found[f"predicted_{name}_low"], found[f"predicted_{name}_high"] = ends[key]
    return found


def _number(row: Row, name: str, default: int = 0) -> int:
    try:
        return int(float(row.get(name) or default))
    except ValueError as error:
        raise InputError(f"{name} is {row[name]!r}, which is no number; correct the row") from error


def _rate(row: Row) -> float | None:
    word = re.match(r"[\d.]+", row.get("request_rate") or "")
    return float(word.group()) if word else None


def _load(row: Row) -> tuple[int, int, int, int]:
    prompt, output, concurrency = (_number(row, name) for name in ("isl", "osl", "concurrency"))
    if min(prompt, output) < 1:
        raise InputError("the row has no isl or osl; complete it")
    requests = _number(row, "num_prompts") or _ROUNDS * concurrency
    if not requests:
        raise InputError("the row has neither concurrency nor num_prompts; complete it")
    return min(requests, max(_MOST_REQUESTS, concurrency)), concurrency, prompt, output


def _lengths(row: Row, tokens: int) -> Lengths:
    """InferenceMAX draws lengths between 0.8 of the nominal and it (--random-range-ratio 0.8).

    Other clients with requests in flight are taken to do so: with all lengths the same, requests would stay in step
    with each other for good, and published TPOT says that they do not.
    """
    return Lengths(tokens, lowest=_RANGE if _number(row, "concurrency") else 1.0)


def _of_inferencemax(row: Row) -> bool:
    """Rows of its database's dumps name the day of the dump; the lengths are its three pairs."""
    dump = re.search(r"(db-dump/|source_file=)20\d\d-\d\d-\d\d", row.get("note", ""))
    return dump is not None and (_number(row, "isl"), _number(row, "osl")) in _PAIRS


def gpu_word(row: Row) -> str:
    """The catalogue's name for a row's GPU."""
    word = row.get("gpu", "").lower()
    for mark, gpu in _GPUS:
        if mark in word:
            return gpu
    raise InputError(f"the GPU {row.get('gpu')!r} is not in the catalogue; name one that `presim hardware list` has")


_GPUS = (
    *(
        ("gb300", "gb300"),
        ("gb200", "gb200"),
        ("b300", "b300"),
        ("b200", "b200"),
        ("h200", "h200"),
        ("h100", "h100-sxm"),
    ),
    *(("h800", "h800"), ("h20", "h20"), ("a100 80", "a100-80gb-sxm"), ("a100-pcie-40", "a100-40gb-pcie")),
    *(("a100 sxm 40", "a100-40gb-sxm"), ("rtx pro 6000", "rtx-pro-6000")),
)


def _weights(row: Row, model: Model) -> tuple[Weights, Weights]:
    """Of the products and of the experts, by the row and by what the model's own checkpoint holds."""
    said = (row.get("gemm_quant") or row.get("precision") or "").lower(), (row.get("moe_quant") or "").lower()
    plain = _WEIGHTS.get(said[0])
    if plain is None:
        raise InputError(f"presim serves no weights of type {said[0]!r}; there are bf16, fp8, fp4")
    experts = _WEIGHTS.get(said[1], plain) if said[1] else plain
    if model.checkpoint == "mxfp4":
        return "bf16", "mxfp4"
    if plain == "fp8" and model.checkpoint == "fp8-block":
        return "fp8-block", "fp8-block"
    return plain, experts


def _factors(row: Row, prefix: str) -> tuple[int, int, bool]:
    """Tensor-parallel ranks, data-parallel ranks, whether experts are whole on their ranks.

    InferenceMAX gives GPUs (`tp`), `ep` and whether attention is data-parallel. Tables made of it multiply: 8 GPUs with
    ep 8 read as tp 64. One engine of a host has no more GPUs than the host, so what is counted twice is taken out.
    """
    tp, dp = max(_number(row, f"{prefix}tp", 1), 1), max(_number(row, f"{prefix}attn_dp", 1), 1)
    ep = _number(row, f"{prefix}moe_ep", 1)
    if _of_inferencemax(row) and not prefix:
        if tp == dp > 1:
            tp = 1
        elif dp > _HOST and ep > 1:
            dp //= ep
        elif tp > _HOST and ep > 1:
            tp //= ep
    return tp, dp, ep > 1


def _plan(row: Row, prefix: str, most: int) -> Plan:
    plain, experts = _weights(row, find(row["model"]))
    tp, dp, ep = _factors(row, prefix)
    each = -(-most // dp)
    return Plan(
        tp=tp,
        pp=max(_number(row, f"{prefix}pp", 1), 1),
        dp=dp,
        ep=ep,
        weights=plain,
        expert_weights=experts,
        cache="fp8" if plain != "bf16" and _keeps_fp8(row) else "bf16",
        max_num_seqs=min(max(each, 16), 1024),
        max_num_batched_tokens=8192,
        max_model_len=max(int((_number(row, "isl") + _number(row, "osl")) * _LONGER) + 16, 2048),
        gpu_memory_utilization=0.9,
        scheduler_recv_interval=_recv_interval(row),
        kernels=_KERNELS.get(row.get("framework", "").lower(), "vllm"),
    )


def _recv_interval(row: Row) -> int:
    """What InferenceMAX's scripts tell SGLang on Blackwell (dsr1_fp4_b200.sh, dsr1_fp8_b200.sh)."""
    if row.get("framework") != "sglang" or not _of_inferencemax(row) or "B200" not in row.get("gpu", ""):
        return 1
    small = _number(row, "concurrency") < 16 or (row.get("gemm_quant") == "fp8" and _number(row, "tp") == 4)
    return 10 if small else 30


def _keeps_fp8(row: Row) -> bool:
    """TensorRT-LLM's default, and what InferenceMAX's scripts tell vLLM on Blackwell (--kv-cache-dtype fp8)."""
    return row.get("framework") == "trtllm" or (row.get("framework") == "vllm" and "B200" in row.get("gpu", ""))


@functools.lru_cache(64)
def _engine(model: str, gpu: str, plan: Plan) -> Engine:
    return build(find(model), plan, choose_cluster(gpu=gpu, world_size=plan.gpus))


def _aggregated(row: Row) -> Deployment:
    most = _number(row, "concurrency") or 1024
    return Deployment(_engine(row["model"], gpu_word(row), _plan(row, "", most)), router="least-loaded")


def _disaggregated(row: Row) -> Deployment:
    concurrency = _number(row, "concurrency")
    workers = max(_number(row, "decode_workers", 1), 1)
    decode = _engine(row["model"], gpu_word(row), _plan(row, "decode_", -(-concurrency // workers)))
    prefill = _engine(row["model"], gpu_word(row), dataclasses.replace(_plan(row, "prefill_", 64), dp=1, ep=False))
    first = max(_number(row, "prefill_workers", 1), 1) * max(_number(row, "prefill_attn_dp", 1), 1)
    return Deployment(decode, workers, "least-loaded", prefill, first)


def write(rows: list[dict[str, str]], path: Path) -> None:
    """The rows with their predictions, as CSV."""
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue().encode())


@dataclasses.dataclass(frozen=True)
class Errors:
    """Relative errors of one figure over some rows."""

    values: tuple[float, ...]
    inside: int

    @property
    def median(self) -> float:
        """Of their sizes."""
        return statistics.median(map(abs, self.values)) if self.values else math.nan

    @property
    def bias(self) -> float:
        """Median with its sign: above 0, presim says too much."""
        return statistics.median(self.values) if self.values else math.nan


def errors(rows: Iterable[Row], figure: str) -> Errors:
    """Of the rows that have both."""
    found, inside = [], 0
    for row in rows:
        measured = next((float(row[name]) for name in FIGURES[figure] if row.get(name)), 0.0)
        if measured > 0 and row.get(f"predicted_{figure}"):
            found.append(float(row[f"predicted_{figure}"]) / measured - 1)
            ends = sorted(float(row[f"predicted_{figure}_{end}"]) for end in ("low", "high"))
            inside += ends[0] <= measured <= ends[1]
    return Errors(tuple(found), inside)


def report(rows: list[dict[str, str]]) -> str:
    """A summary in Markdown: by figure, and by engine, model and GPU; reasons of rows without a prediction."""
    lines = [
        "# Serving: predicted beside measured",
        "",
        "| rows of | figure | rows | median error | bias | in 80 % interval |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups["all"].append(row)
        if row.get("confidence", "").startswith("complete"):
            groups["all complete"].append(row)
        label = (row.get(name, "") for name in ("framework", "model", "gpu", "mode", "gemm_quant"))
        groups[" ".join(part for part in label if part)].append(row)
    for name, members in sorted(groups.items(), key=lambda item: (not item[0].startswith("all"), -len(item[1]))):
        for figure in FIGURES:
            if (found := errors(members, figure)).values:
                inside = found.inside / len(found.values)
                said = f"{found.median:.1%} | {found.bias:+.1%} | {inside:.0%}"
                lines.append(f"| {name} | {figure} | {len(found.values)} | {said} |")
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.get("reason"):
            reasons[re.sub(r"\s+", " ", row["reason"])[:160]] += 1
    lines += ["", "## Rows without a prediction", ""]
    lines += [f"- {count}: {reason}" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
    return "\n".join([*lines, ""])


def summary(rows: list[dict[str, str]]) -> dict[str, Any]:
    """Median errors beside the goals, of the rows whose configuration is complete."""
    complete = [row for row in rows if row.get("confidence", "complete").startswith("complete")]
    return {figure: (errors(complete, figure).median, goal) for figure, goal in _GOALS.items()}
