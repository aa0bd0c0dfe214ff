"""The answer of `presim serve` as one self-contained HTML page: key figures, the report, and the run over time."""

from __future__ import annotations

from presim.report.bars import Bar, Part
from presim.report.blocks import Block, HeadingBlock, TableBlock, bar_block, blocks
from presim.report.drawings.drawing import Drawing
from presim.report.drawings.served_load import engines_over_time, requests_over_time, served_load
from presim.report.sections import KeyFigure, KeyFigures, Section, page
from presim.result.serving import EngineMemory, ServingResult
from presim.serving.answer.screen import screen

_LATENCIES = (("mean_ttft_ms", "TTFT, mean"), ("p99_ttft_ms", "TTFT, p99"), ("mean_tpot_ms", "TPOT, mean"))


def render(result: ServingResult) -> str:
    """The page."""
    deployment = result.deployment
    gpus = " and ".join(dict.fromkeys((deployment.prefill_gpu or deployment.gpu, deployment.gpu)))
    report = blocks(screen(result))[1:]  # without the line that is the title here
    end = next((index + 1 for index, block in enumerate(report) if isinstance(block, TableBlock)), 0)
    sections: list[Section] = [_key_figures(result), *report[:end], *_memory(result.memory), *_drawings(result)]
    return page(f"{deployment.model} on {deployment.gpus} x {gpus}", deployment.plan, [*sections, *report[end:]])


def _key_figures(result: ServingResult) -> KeyFigures:
    """Latencies and throughput with their 80 % intervals; figures that are not known are left out."""
    cells = [
        KeyFigure(label, f"{_number(value)} ms", _interval(result, key))
        for key, label in _LATENCIES
        if isinstance(value := result.figures.get(key), int | float)
    ]
    if isinstance(throughput := result.figures.get("output_throughput"), int | float):
        cells.append(KeyFigure("output tokens per second", _number(throughput), _interval(result, "output_throughput")))
    cells.append(KeyFigure("output tokens/s per GPU", _number(result.per_gpu_output_throughput)))
    if result.largest_request_rate_within_slo:
        cells.append(
            KeyFigure("requests/s within the SLO", _number(result.largest_request_rate_within_slo), "the knee")
        )
    elif result.sustainable_request_rate:
        cells.append(KeyFigure("sustainable requests/s", _number(result.sustainable_request_rate)))
    return KeyFigures(tuple(cells))


def _interval(result: ServingResult, key: str) -> str:
    bounds = result.intervals_80.get(key)
    return " to ".join(map(_number, bounds)) if bounds else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _memory(memory: EngineMemory) -> list[Block]:
    """The parts of the fullest GPU's memory as a bar."""
    sizes = {
        "weights": memory.weights_GiB,
        "activations": memory.activations_GiB,
        "others": memory.others_GiB,
        "KV cache": memory.kv_cache_GiB,
    }
    parts = [Part(name, size, "", name[0].lower(), f"{size:.1f}") for name, size in sizes.items()]
    heading = HeadingBlock("Memory of the fullest GPU in GiB", f"{memory.allowed_GiB:.1f} may be used", 2)
    return [heading, bar_block(Bar(parts))]


def _drawings(result: ServingResult) -> list[Drawing]:
    drawings = served_load(result.over_time) if result.over_time is not None else []
    if result.fleet is not None:
        end_s = result.over_time.time_s[-1] if result.over_time is not None else 0.0
        drawings.append(engines_over_time(result.fleet.engines_over_time, end_s))
    requests = requests_over_time(result.request_times) if result.request_times is not None else None
    return [*drawings, *([requests] if requests is not None else [])]
