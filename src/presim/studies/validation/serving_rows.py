"""What a row of a table of published serving runs stands for: an engine, engines together, and a load."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from presim.composition.models.description import Model
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.deployments.deployment import Deployment
from presim.serving.model_lookup import checkpoint_of, find
from presim.serving.serving_plan import Kernels, ServingPlan, Weights
from presim.serving.steps.times import PricedEngine, build
from presim.serving.workloads.generate import Lengths, WorkloadRecipe
from presim.studies.validation import inferencemax
from presim.studies.validation.inferencemax_apart import Part, options_of_part
from presim.system.files import shortened

# Requests of a run per request in flight, as in InferenceMAX's scripts (InferenceX, benchmarks/*.sh).
_ROUNDS, _MOST_REQUESTS = 10, 4000
_MOST = 1e12
_RANGE = 0.8
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
_MOST_SEQUENCES = {"trtllm": 2048}  # of a step, where all requests are queued: trtllm-bench's default (1.0)
_HOST = 8  # GPUs of one host
_KERNELS: dict[str, Kernels] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm"}
Row = Mapping[str, str]


def _number(row: Row, name: str, default: int = 0) -> int:
    try:
        number = float(row.get(name) or default)
    except ValueError as error:
        raise InputError(f"{name} is {shortened(row[name])!r}, which is not a number; correct the row") from error
    if not 0 <= number < _MOST or not number.is_integer():
        raise InputError(f"{name} is {shortened(row[name])!r}, which is not a whole number; correct the row")
    return int(number)


def _rate(row: Row) -> float | None:
    word = re.match(r"[\d.]+", row.get("request_rate") or "")
    return float(word.group()) if word else None


def _load(row: Row) -> tuple[int, int, int, int]:
    prompt, output, concurrency = (_number(row, name) for name in ("isl", "osl", "concurrency"))
    if min(prompt, output) < 1:
        raise InputError("the row lacks isl or osl; add them")
    requests = _number(row, "num_prompts") or _ROUNDS * concurrency
    if not requests:
        raise InputError("the row has neither concurrency nor num_prompts; add one")
    return min(requests, max(_MOST_REQUESTS, concurrency)), concurrency, prompt, output


def _lengths(row: Row, tokens: int) -> Lengths:
    """Lengths as the run's client makes them: the column `lengths` says fixed, or the least share of the nominal ones.

    Without it, runs at a concurrency have lengths between 0.8 and 1 of the nominal ones, as in InferenceMAX's scripts
    (--random-range-ratio 0.8). With equal lengths requests stay synchronised, which most published TTFT contradicts:
    30 rows of aiconfigurator's own runs of vLLM are 23 % off with drawn and 85 % off with fixed lengths.
    """
    word = row.get("lengths") or ""
    if word == "fixed":
        return Lengths(tokens)
    try:
        share = float(word or (_RANGE if _number(row, "concurrency") else 1.0))
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"lengths is {shortened(word)!r}; write fixed, or the least share of isl and osl, e.g. 0.8")
    return Lengths(tokens, lowest=share)


def _framework(row: Row) -> str:
    """A short name of the engine: tables call TensorRT-LLM by either name, and NVIDIA's NIM runs it."""
    word = row.get("framework", "").lower()
    return "trtllm" if word.startswith(("tensorrt-llm", "nim")) else word


def gpu_word(row: Row) -> str:
    """The catalogue id of a row's GPU."""
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
    """Weight formats of products and of experts, from the row and the model's checkpoint."""
    formats = (row.get("gemm_quant") or row.get("precision") or "").lower(), (row.get("moe_quant") or "").lower()
    plain = _WEIGHTS.get(formats[0])
    if plain is None:
        raise InputError(f"presim cannot serve weights of type {formats[0]!r}; use bf16, fp8 or fp4")
    experts = _WEIGHTS.get(formats[1], plain) if formats[1] else plain
    if model.checkpoint.experts == "mxfp4":
        return "bf16", "mxfp4"
    if plain == "fp8" and model.checkpoint.weights == "fp8-block":
        return "fp8-block", "fp8-block"
    return plain, experts


def _factors(row: Row, prefix: str) -> tuple[int, int, bool]:
    """Tensor-parallel ranks, data-parallel ranks, and whether each rank has whole experts.

    InferenceMAX states the number of GPUs (`tp`), `ep` and whether attention is data-parallel. Tables derived from it
    multiply these: 8 GPUs with ep 8 become tp 64. An engine on one host has at most the host's GPUs, so the duplicate
    factor is removed. TensorRT-LLM's performance overview has attention data-parallel on all ranks, with whole experts,
    for each model that has experts (docs/source/performance/perf-overview.md, 1.0).
    """
    if _framework(row) == "trtllm" and row.get("mode", "").startswith("offline") and find(row["model"]).experts:
        ranks = max(_number(row, "tp", 1), 1)
        return 1, ranks, ranks > 1
    tp, dp = max(_number(row, f"{prefix}tp", 1), 1), max(_number(row, f"{prefix}attn_dp", 1), 1)
    ep = _number(row, f"{prefix}moe_ep", 1)
    if inferencemax.is_of_inferencemax(row) and not prefix:
        if tp == dp > 1:
            tp = 1
        elif dp > _HOST and ep > 1:
            dp //= ep
        elif tp > _HOST and ep > 1:
            tp //= ep
    return tp, dp, ep > 1


def _plan(row: Row, part: Part | None, concurrency: int) -> ServingPlan:
    """The plan of an engine; ``part``: of a disaggregated run."""
    prefix = f"{part}_" if part else ""
    plain, experts = _weights(row, find(row["model"]))
    has_published_types = plain == "fp4" and _name(row) != row["model"]
    tp, dp, ep = _factors(row, prefix)
    sequences_per_rank = -(-concurrency // dp)
    fields: dict[str, Any] = {
        "tp": tp,
        "pp": max(_number(row, f"{prefix}pp", 1), 1),
        "dp": dp,
        "ep": ep,
        "weights": plain,
        "expert_weights": experts,
        "as_published": has_published_types,
        "cache": "fp8" if plain != "bf16" and _keeps_fp8(row) else "bf16",
        "max_num_seqs": min(max(sequences_per_rank, 16), 2048),
        "max_num_batched_tokens": 8192,  # every engine's default
        "async_scheduling": _schedules_asynchronously(row),
        "max_model_len": _longest(row),
        "gpu_memory_utilization": 0.9,
        "kernels": _KERNELS.get(_framework(row), "vllm"),
        "engine_version": _version(row),
    }
    if part and inferencemax.is_of_inferencemax(row):
        return ServingPlan(**fields | options_of_part(row, _framework(row), part))
    return ServingPlan(**fields | inferencemax.options_of(row, _framework(row), tp))


def _name(row: Row) -> str:
    """The model of a row, or NVIDIA's checkpoint of it where weights are in NVFP4: most keep attention in 16 bits."""
    published = checkpoint_of(row["model"], "NVFP4") if _WEIGHTS.get(row.get("gemm_quant", "")) == "fp4" else None
    return published or row["model"]


def _version(row: Row) -> str | None:
    """The engine's version where the row has its number."""
    found = re.match(r"\d+(\.\d+)+", row.get("framework_version") or "")
    return found.group() if found else None


def _longest(row: Row) -> int:
    """Tokens of a request at most: a little more than it has, as far as the model goes."""
    tokens = _number(row, "isl") + _number(row, "osl")
    return min(max(int(tokens * _LONGER) + 16, 2048), find(row["model"]).longest)


def _schedules_asynchronously(row: Row) -> bool:
    """Whether steps are scheduled while others run.

    TensorRT-LLM and SGLang do so, and vLLM by default since 0.14. InferenceMAX's scripts set it for earlier versions.
    """
    version = re.match(r"0\.(\d+)", row.get("framework_version") or "")
    early = _framework(row) == "vllm" and version is not None and int(version.group(1)) < 14
    return not early or inferencemax.is_of_inferencemax(row)


def _keeps_fp8(row: Row) -> bool:
    """Whether the KV cache is in FP8: ModelOpt's checkpoints say so to TensorRT-LLM, and most scripts on Blackwell."""
    return _framework(row) == "trtllm" or (_framework(row) == "vllm" and "B200" in row.get("gpu", ""))


@functools.lru_cache(64)
def _engine(model: str, gpu: str, plan: ServingPlan) -> PricedEngine:
    return build(find(model), plan, choose_cluster(gpu=gpu, world_size=plan.gpus))


def deployment_of_row(row: Row) -> Deployment:
    """What serves.

    Raises:
        InputError: the row says something that presim does not know, or that cannot be.
    """
    return _disaggregated(row) if row.get("mode") == "disagg" else _aggregated(row)


def load_of_row(row: Row) -> WorkloadRecipe:
    """What is served.

    Raises:
        InputError: a number is none.
    """
    requests, concurrency, prompt, output = _load(row)
    return WorkloadRecipe(
        requests, _lengths(row, prompt), _lengths(row, output), concurrency=concurrency, rate=_rate(row), seed=0
    )


def _aggregated(row: Row) -> Deployment:
    concurrency = _number(row, "concurrency") or _MOST_SEQUENCES.get(_framework(row), 1024)
    return Deployment(_engine(_name(row), gpu_word(row), _plan(row, None, concurrency)), router="least-loaded")


def _disaggregated(row: Row) -> Deployment:
    concurrency = _number(row, "concurrency")
    workers, first = _number(row, "decode_workers"), _number(row, "prefill_workers")
    if min(workers, first) < 1:
        raise InputError("the row lacks prefill_workers or decode_workers; add them")
    decode = _engine(_name(row), gpu_word(row), _plan(row, "decode", -(-concurrency // workers)))
    prefill = _engine(_name(row), gpu_word(row), _plan(row, "prefill", 64))
    return Deployment(decode, workers, "least-loaded", prefill, first)
