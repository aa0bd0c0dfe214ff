"""The answer of `presim serve` in the terminal."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from presim.result.serving import CacheTiers, EngineFigures, EngineMemory, ServedDeployment, ServingResult
from presim.serving.answer import fleet as fleets
from presim.serving.answer import operator_detail
from presim.serving.answer.metrics import slo_text
from presim.serving.answer.token_cost import sentence
from presim.serving.deployments.prediction import SHOWN

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


def write(result: ServingResult) -> None:
    """Print the report."""
    Console(highlight=False, markup=False, emoji=False).print(screen(result))


def screen(result: ServingResult) -> RenderableType:
    """The terminal report."""
    return Group(
        *_head(result),
        Text(),
        _figures(result),
        Text(),
        *map(Text, _sentences(result)),
        *(operator_detail.tables(result.step_detail) if result.step_detail else []),
        *(Text(note, style="yellow") for note in result.notes),
        *(Text(sentence, style="dim") for sentence in result.not_modelled),
    )


def _head(result: ServingResult) -> list[Text]:
    """What serves what, and the memory."""
    deployment, memory = result.deployment, result.memory
    ids = dict.fromkeys((deployment.prefill_gpu or deployment.gpu, deployment.gpu))
    defaults = deployment.engine_defaults.text
    return [
        Text(f"{deployment.model} on {deployment.gpus} x {' and '.join(ids)}, {deployment.plan}", style="bold"),
        Text(f"{_engines(deployment)}, {deployment.router}; {result.workload.name}"),
        *_description(deployment),
        Text(
            f"Memory of the fullest GPU: weights {memory.weights_GiB:.1f} GiB, activations "
            f"{memory.activations_GiB:.1f}, others {memory.others_GiB:.1f}, KV cache {memory.kv_cache_GiB:.1f} of "
            f"{memory.allowed_GiB:.1f} GiB: {memory.kv_cache_tokens:,} tokens{_groups(memory)}"
        ),
        *([Text(defaults)] if defaults else []),
    ]


def _engines(deployment: ServedDeployment) -> str:
    """How many engines of each kind there are, and on what if that differs."""
    if not deployment.prefill_replicas:
        return f"{deployment.replicas} replica{'s' if deployment.replicas > 1 else ''}"
    differs = deployment.prefill_gpu not in (None, deployment.gpu)
    on_first, on_other = (f" on {deployment.prefill_gpu}", f" on {deployment.gpu}") if differs else ("", "")
    return f"{deployment.prefill_replicas} prefill{on_first} and {deployment.replicas} decode replicas{on_other}"


def _description(deployment: ServedDeployment) -> list[Text]:
    """Parameters and types of weights with their origins; nothing of results that say neither."""
    if deployment.parameters is None:
        return []
    origin = f"{deployment.parameters / 1e9:,.1f} billion parameters by {deployment.described_by}"
    states = deployment.state_bytes_per_sequence / (1 << 20)
    keeps = f"{deployment.kv_bytes_per_token / 1024:,.4g} KiB a token" + (
        f", {states:,.4g} MiB a sequence" if states else ""
    )
    return [
        Text(f"{origin}; weights {deployment.weights}"),
        Text(f"Layers: {deployment.layers}; they keep {keeps}"),
    ]


def _groups(memory: EngineMemory) -> str:
    """Groups of layers in words, where there are several."""
    groups = memory.kv_groups
    if len(groups) < 2:
        return ""
    kinds = dict.fromkeys(group.kind for group in groups)
    counts = ", ".join(f"{sum(group.kind == kind for group in groups)} {kind}" for kind in kinds)
    return f" in {memory.kv_cache_pages:,} pages, shared by {len(groups)} groups of layers ({counts})"


def _figures(result: ServingResult) -> RenderableType:
    """Latencies and throughput with their intervals."""
    if not result.figures["completed"]:
        return Text("No request was served, so there are no latencies and no throughput.")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("predicted", justify="right")
    table.add_column("80 % interval", justify="right", style="dim")
    for key, name in _NAMES.items():
        value = result.figures.get(key)
        if isinstance(value, int | float):
            low, high = result.intervals_80[key]
            unit = " ms" if key.endswith("_ms") else ""
            table.add_row(name, f"{_number(value)}{unit}", f"{_number(low)} to {_number(high)}")
    table.add_row("Output tokens/s/GPU", _number(result.per_gpu_output_throughput), "")
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _sentences(result: ServingResult) -> list[str]:
    """What the engines did, the largest rates, the cost, and what the figures rest on."""
    sentences = [_engine_line(result.engine)]
    if result.engine.tiers:
        sentences.append(_tiers_line(result.engine.tiers))
    if result.fleet:
        sentences.append(fleets.sentence(result.fleet))
    if result.sustainable_request_rate:
        sentences.append(f"Sustainable: {result.sustainable_request_rate:.3g} requests/s")
    if result.largest_request_rate_within_slo:
        sentences.append(
            f"Knee, the largest sustainable rate with {slo_text(result.slo, result.slo_statistic_by_metric)}: "
            f"{result.largest_request_rate_within_slo:.3g} requests/s"
        )
    sentences += [line for line in [sentence(result.cost)] if line]
    origins = ", ".join(f"{name} {share:.0%}" for name, share in result.prices.items())
    host = result.overheads["host_origin"] or result.overheads["origin"]
    sentences.append(f"A decoding step's prices: {origins}. Host overhead: {host}.")
    if result.steps:
        sentences.append(_steps_line(result.steps))
    return sentences


def _engine_line(engine: EngineFigures) -> str:
    if not engine.steps:
        return "Engine: no step"
    return (
        f"Engine: {engine.steps:,} steps, device busy {engine.device_busy:.0%}, batch "
        f"{engine.mean_batch:.1f} on average, KV use {engine.mean_kv_use:.0%} (at most "
        f"{engine.max_kv_use:.0%}), at most {engine.max_waiting:,} waiting, "
        f"{engine.preemptions:,} preemptions, cache hits {engine.prefix_cache_hit_rate:.0%}"
    )


def _tiers_line(tiers: CacheTiers) -> str:
    return (
        f"Prompt tokens found: {tiers.gpu_hit_rate:.1%} on the GPU, {tiers.host_hit_rate:.1%} in host memory, "
        f"{tiers.disk_hit_rate:.1%} on disk{_shared_words(tiers)}; {tiers.blocks_given_up_by_gpus:,} blocks left GPUs, "
        f"{tiers.blocks_lost:,} were lost"
    )


def _shared_words(tiers: CacheTiers) -> str:
    if not tiers.blocks_stored:
        return ""
    return f", {tiers.shared_hit_rate:.1%} in the shared pool, which got {tiers.blocks_stored:,} blocks"


def _steps_line(steps: dict[str, str | int | float]) -> str:
    return (
        f"Steps: {steps['fitted_batches']} batches {steps['source']}, interpolated; device time of "
        f"{steps['held_out_batches']} held-out batches is {steps['held_out_median_error']:.1%} off in the median, "
        f"{steps['held_out_largest_error']:.1%} at most"
    )


assert set(SHOWN) <= set(_NAMES)
