"""A prediction as one JSON document and as a terminal report."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from presim.serving import defaults
from presim.serving.answer import detail
from presim.serving.answer import fleet as fleets
from presim.serving.answer.cost import Prices, cost, sentence
from presim.serving.answer.metrics import slo_text
from presim.serving.deployments.deployment import SHOWN, Prediction
from presim.serving.kept import model_state_bytes, model_token_bytes
from presim.serving.steps.times import Engine
from presim.serving.versions import NEWEST
from presim.serving.workloads.workload import summary
from presim.units import GIB

SCHEMA = "presim-serving/1"
_NO_PRICES = Prices()
_NAMES = {
    "mean_ttft_ms": "TTFT, mean",
    "median_ttft_ms": "TTFT, median",
    "p99_ttft_ms": "TTFT, p99",
    "mean_tpot_ms": "TPOT, mean",
    "p99_tpot_ms": "TPOT, p99",
    "p99_itl_ms": "ITL, p99",
    "mean_e2el_ms": "E2E, mean",
    "p99_e2el_ms": "E2E, p99",
    "request_throughput": "Requests/s",
    "output_throughput": "Output tokens/s",
    "total_token_throughput": "Tokens/s, in and out",
    "request_goodput": "Good requests/s",
}


def document(
    prediction: Prediction, *, per_request: bool = False, prices: Prices = _NO_PRICES, detailed_steps: bool = False
) -> dict[str, Any]:
    """All results; `figures` uses the keys of ``vllm bench serve``. ``detailed_steps``: with two steps by operator."""
    from presim.serving.answer import metrics

    deployment, engine = prediction.deployment, prediction.deployment.engine
    figures = metrics.bench(prediction.served, prediction.slo, per_request=True) if per_request else prediction.figures
    memory = engine.memory
    return {
        "schema": SCHEMA,
        "deployment": {
            "model": engine.model.name,
            "gpu": engine.cluster.gpu.id,
            "plan": engine.plan.text,
            "weights": _weights(engine),
            "parameters": engine.model.parameters,
            "described_by": engine.model.origin,
            "layers": engine.model.text,
            "kv_bytes_per_token": model_token_bytes(engine.model, engine.plan.cache, engine.cluster.gpu.architecture),
            "state_bytes_per_sequence": model_state_bytes(engine.model),
            "gpus": deployment.gpus,
            "replicas": deployment.replicas,
            "prefill_replicas": deployment.prefill_replicas,
            "router": deployment.router,
            "life": None if deployment.life is None else dataclasses.asdict(deployment.life),
            "limits": dataclasses.asdict(engine.limits),
            "engine_defaults": {
                "engine": defaults.VERSIONS[engine.plan.kernels],
                "version": engine.plan.engine_version or NEWEST[engine.plan.kernels],
                "text": defaults.sentence(engine.plan, engine.cluster.gpu),
                "fields": {name: getattr(engine.plan, name) for name in engine.plan.defaulted},
            },
        },
        "memory": {
            "weights_GiB": memory.weights / GIB,
            "activations_GiB": memory.activations / GIB,
            "others_GiB": memory.reserved / GIB,
            "kv_cache_GiB": memory.cache / GIB,
            "allowed_GiB": memory.allowed / GIB,
            "kv_cache_tokens": memory.tokens(engine.limits.max_model_len),
            "kv_cache_pages": memory.blocks,
            "kv_page_tokens": memory.pool.block_tokens,
            "kv_page_bytes": memory.pool.page_bytes,
            "kv_groups": [
                {
                    "kind": group.spec.kind,
                    "layers": len(group.layers),
                    "page_tokens": group.spec.block_tokens,
                    "window": group.spec.window or None,
                }
                for group in memory.pool.groups
            ],
        },
        "workload": summary(prediction.workload),
        "figures": figures,
        "intervals_80": {name: list(bounds) for name, bounds in prediction.intervals.items()},
        "per_gpu_output_throughput": figures["output_throughput"] / prediction.gpus,
        "fleet": prediction.fleet,
        "cost": cost(prediction, prices),
        "engine": prediction.inside,
        "slo": prediction.slo.bounds,
        "slo_percentile": prediction.slo.percentile,
        "slo_statistics": prediction.slo.statistics,
        "sustainable_request_rate": prediction.sustainable,
        "largest_request_rate_within_slo": prediction.knee,
        "overloaded": prediction.overloaded,
        "prices": engine.origins,
        "steps": engine.steps,
        "step_detail": detail.of_prediction(prediction) if detailed_steps else None,
        "overheads": {**{name: getattr(engine.overheads, name) for name in engine.overheads.__dataclass_fields__}},
        "notes": prediction.notes,
        "not_modelled": prediction.not_modelled,
    }


def write(report: dict[str, Any]) -> None:
    """Print the report of a document."""
    Console(highlight=False, markup=False, emoji=False).print(screen(report))


def encode(
    prediction: Prediction, *, per_request: bool = False, prices: Prices = _NO_PRICES, detailed_steps: bool = False
) -> bytes:
    """Encode as JSON with sorted keys."""
    content = document(prediction, per_request=per_request, prices=prices, detailed_steps=detailed_steps)
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def _statistics(report: dict[str, Any]) -> dict[str, str]:
    """What meets each limit of an SLO; earlier versions had one percentile for all of them."""
    statistic = f"p{report['slo_percentile']:g}"
    return dict(report.get("slo_statistics") or dict.fromkeys(report["slo"], statistic))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _tiers_line(tiers: dict[str, Any]) -> str:
    return (
        f"Prompt tokens found: {tiers['gpu_hit_rate']:.1%} on the GPU, {tiers['host_hit_rate']:.1%} in host memory, "
        f"{tiers['disk_hit_rate']:.1%} on disk; {tiers['blocks_given_up_by_gpus']:,} blocks left GPUs, "
        f"{tiers['blocks_lost']:,} were lost"
    )


def _groups(memory: dict[str, Any]) -> str:
    """Groups of layers in words, where there are several."""
    groups = memory["kv_groups"]
    if len(groups) < 2:
        return ""
    kinds = dict.fromkeys(group["kind"] for group in groups)
    counts = ", ".join(f"{sum(group['kind'] == kind for group in groups)} {kind}" for kind in kinds)
    return f" in {memory['kv_cache_pages']:,} pages, shared by {len(groups)} groups of layers ({counts})"


def _engine(inside: dict[str, Any]) -> str:
    if not inside["steps"]:
        return "Engine: no step"
    return (
        f"Engine: {inside['steps']:,} steps, device busy {inside['device_busy']:.0%}, batch "
        f"{inside['mean_batch']:.1f} on average, KV use {inside['mean_kv_use']:.0%} (at most "
        f"{inside['max_kv_use']:.0%}), at most {inside['max_waiting']:,} waiting, "
        f"{inside['preemptions']:,} preemptions, cache hits {inside['prefix_cache_hit_rate']:.0%}"
    )


def _steps_line(steps: dict[str, Any]) -> str:
    return (
        f"Steps: {steps['fitted_batches']} batches {steps['source']}, interpolated; device time of "
        f"{steps['held_out_batches']} held-out batches is {steps['held_out_median_error']:.1%} off in the median, "
        f"{steps['held_out_largest_error']:.1%} at most"
    )


def _weights(engine: Engine) -> str:
    """Types of the weights, and what of the checkpoint says so; without that, they are the user's."""
    plan = engine.plan
    if plan.as_published:
        return engine.model.checkpoint.text
    return plan.weights if plan.of_experts == plan.weights else f"{plan.weights}, experts {plan.of_experts}"


def _description(deployment: dict[str, Any]) -> list[Text]:
    """Parameters and types of weights with their origins; nothing of results that say neither."""
    if "parameters" not in deployment:
        return []
    origin = f"{deployment['parameters'] / 1e9:,.1f} billion parameters by {deployment['described_by']}"
    states = deployment["state_bytes_per_sequence"] / (1 << 20)
    keeps = f"{deployment['kv_bytes_per_token'] / 1024:,.4g} KiB a token" + (
        f", {states:,.4g} MiB a sequence" if states else ""
    )
    return [
        Text(f"{origin}; weights {deployment['weights']}"),
        Text(f"Layers: {deployment['layers']}; they keep {keeps}"),
    ]


def screen(report: dict[str, Any]) -> RenderableType:
    """The terminal report of a document."""
    deployment, memory = report["deployment"], report["memory"]
    inside = report["engine"]
    title = Text(
        f"{deployment['model']} on {deployment['gpus']} x {deployment['gpu']}, {deployment['plan']}", style="bold"
    )
    copies = f"{deployment['replicas']} replica{'s' if deployment['replicas'] > 1 else ''}"
    if deployment["prefill_replicas"]:
        copies = f"{deployment['prefill_replicas']} prefill and {deployment['replicas']} decode replicas"
    lines = [
        title,
        Text(f"{copies}, {deployment['router']}; {report['workload']['name']}"),
        *_description(deployment),
        Text(
            f"Memory of the fullest GPU: weights {memory['weights_GiB']:.1f} GiB, activations "
            f"{memory['activations_GiB']:.1f}, others {memory['others_GiB']:.1f}, KV cache "
            f"{memory['kv_cache_GiB']:.1f} of {memory['allowed_GiB']:.1f} GiB: {memory['kv_cache_tokens']:,} tokens"
            f"{_groups(memory)}"
        ),
        *([Text(deployment["engine_defaults"]["text"])] if deployment["engine_defaults"]["text"] else []),
    ]
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("predicted", justify="right")
    table.add_column("80 % interval", justify="right", style="dim")
    for key, name in _NAMES.items():
        value = report["figures"].get(key)
        if value is not None and report["figures"].get("completed", True):
            low, high = report["intervals_80"][key]
            unit = " ms" if key.endswith("_ms") else ""
            table.add_row(name, f"{_number(value)}{unit}", f"{_number(low)} to {_number(high)}")
    if report["figures"]["completed"]:
        table.add_row("Output tokens/s/GPU", _number(report["per_gpu_output_throughput"]), "")
    else:
        table = Text("No request was served, so there are no latencies and no throughput.")  # type: ignore[assignment]
    after = [_engine(inside)]
    if inside.get("tiers"):
        after.append(_tiers_line(inside["tiers"]))
    if report["fleet"]:
        after.append(fleets.sentence(report["fleet"]))
    if report["sustainable_request_rate"]:
        after.append(f"Sustainable: {report['sustainable_request_rate']:.3g} requests/s")
    if report["largest_request_rate_within_slo"]:
        after.append(
            f"Knee, the largest sustainable rate with {slo_text(report['slo'], _statistics(report))}: "
            f"{report['largest_request_rate_within_slo']:.3g} requests/s"
        )
    after += [line for line in [sentence(report["cost"])] if line]
    rests = ", ".join(f"{name} {share:.0%}" for name, share in report["prices"].items())
    host = report["overheads"]["host_origin"] or report["overheads"]["origin"]
    after.append(f"A decoding step's prices: {rests}. Host overhead: {host}.")
    if report["steps"]:
        after.append(_steps_line(report["steps"]))
    notes = [Text(note, style="yellow") for note in report["notes"]]
    return Group(
        *lines,
        Text(),
        table,
        Text(),
        *map(Text, after),
        *(detail.tables(report["step_detail"]) if report.get("step_detail") else []),
        *notes,
        *(Text(s, style="dim") for s in report["not_modelled"]),
    )


assert set(SHOWN) <= set(_NAMES)
