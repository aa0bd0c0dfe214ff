"""Hold measured kernels and steps of inference engines against presim's prices, as Markdown on standard output.

    python validation/gpu/compare_serving.py DIR [--rows]

Kernels are priced as `presim serve` prices them, without a measured table. A composed step has three times: measured as
one CUDA graph, the sum of its kernels as measured one by one, and the sum of presim's prices.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from campaign import lines_of

from presim.cli.script import sentences
from presim.cost.profile.run_profile import gpu_named
from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.serving.kept_bytes import kv_heads as kv_heads_of
from presim.serving.model_lookup import Model, find
from presim.serving.serving_plan import ServingPlan, Weights
from presim.serving.steps import mixer_work, stage
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.pricer import Pricer
from presim.serving.steps.routed_experts import Routed
from presim.serving.steps.step_work import Reduce, Work
from presim.serving.steps.times import FIXED_SHARE
from presim.trace.signatures import Attention, Elementwise, Gemm, GroupedGemm, Normalization

SERVING = "serving.jsonl"
Row = dict[str, Any]
Works = list[Work]
_BACKENDS = {"flash3": "flash3", "triton": "flash", "flash_attention": "flash", "cudnn_attention": "cudnn"}
_EXPERTS = {  # experts, chosen, hidden, width
    "qwen3-30b-a3b": (128, 8, 2048, 768),
    "mixtral-8x7b/2": (8, 2, 4096, 7168),
    "gpt-oss-120b": (128, 4, 2944, 2944),
}
_WEIGHTS: dict[str, Weights] = {"bfloat16": "bf16", "float8": "fp8", "uint4": "int4", "mxfp4": "mxfp4"}
_STEPS = {"llama-3-8b": ("llama3-8b", 1), "llama-3-70b/8": ("llama3-70b", 8)}


def attention(shape: Row) -> Works:
    """One call of each kind of sequence."""
    heads, kv_heads, kernel = shape["heads"], shape["kv_heads"], shape["kernel"]
    paged, backend = kernel in ("flash3", "triton"), _BACKENDS[kernel]
    return [
        Attention(
            *("forward", count, heads, kv_heads, queries, keys, 128, 128, True, shape["dtype"], backend), paged=paged
        )
        for count, queries, keys in shape["sequences"]
    ]


def product(shape: Row) -> Works:
    """A linear layer."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    if shape["kind"] == "bfloat16":
        return [Gemm(m, n, k, 1, "bfloat16", layout="NT")]
    if shape["kind"].startswith("uint4"):
        scaling = shape["kind"].split()[1]
        return [Gemm(m, n, k, 1, "bfloat16", b_dtype="uint4", layout="NT", scaling=scaling)]
    scaling = "outer" if "rows" in shape["kind"] else ""
    return [Gemm(m, n, k, 1, "float8_e4m3fn", out_dtype="bfloat16", layout="NT", scaling=scaling)]


def experts(shape: Row) -> Works:
    """A layer's experts as `presim serve` prices them, or one grouped product."""
    count, chosen, hidden, width = _EXPERTS[shape["model"]]
    tokens, half = shape["tokens"], shape["kind"] != "float8"
    if shape["part"] == "layer":
        return [Routed(tokens, hidden, width, chosen, count, 1, _WEIGHTS[shape["kind"]])]
    n, k = (2 * width, hidden) if shape["part"] == "gate_up" else (hidden, width)
    used = round(count * (1 - (1 - chosen / count) ** tokens))
    packed = {"uint4": "uint4", "mxfp4": "float4_e2m1fn_x2"}.get(shape["kind"], "")
    dtype = "bfloat16" if half else "float8_e4m3fn"
    return [GroupedGemm(used, tokens * chosen, n, k, dtype, out_dtype="bfloat16", b_dtype=packed)]


def pointwise(shape: Row) -> Works:
    """A norm, an activation, a rotary embedding or writes to the cache, as `presim serve` counts their bytes."""
    kernel, tokens = shape["kernel"].removeprefix("vllm "), shape["tokens"]
    if kernel == "cast":
        size = tokens * shape["width"]
        return [Elementwise(2 * size, size, size, "bfloat16", operator=kernel)]
    if kernel == "add_norm":
        moved = 2 * tokens * shape["width"]
        return [Normalization(*(2 * moved, 2 * moved, moved // 2, "bfloat16"), operator="rms_norm", row=shape["width"])]
    if kernel == "silu_and_mul":
        read, written = 4 * tokens * shape["width"], 2 * tokens * shape["width"]
    else:
        heads, kv_heads = shape["heads"] * 128, shape["kv_heads"] * 128
        wide = heads + 2 * kv_heads
        read, written = (2 * tokens * wide, 2 * tokens * heads) if kernel == "rotary" else (4 * tokens * kv_heads,) * 2
    return [Elementwise(read, written, max(read, written) // 2, "bfloat16", operator=kernel)]


def model_of(name: str) -> tuple[Model, ServingPlan]:
    """The model of a composed step, and its split over GPUs."""
    word, tp = _STEPS[name]
    return find(word), ServingPlan(tp=tp)


def step(shape: Row) -> Works:
    """All work of a composed step; its all-reduces were not measured."""
    model, plan = model_of(shape["model"])
    sequences = shape["sequences"]
    tokens, ends = sum(count * asked for count, asked, _ in sequences), sum(count for count, *_ in sequences)
    works = stage.embedding(model, plan, tokens) + stage.head(model, plan, ends)
    (layer, count_of_layers), *_ = model.counts()
    works += stage.layer_works(layer, model.hidden, plan, tokens) * count_of_layers
    for count, asked, kept in sequences:
        decodes = asked == 1
        kernel = mixer_work.kernel(layer.cached[0], plan, count, asked, kept, "flash3", decode=decodes)
        works += [kernel] * count_of_layers
    return [work for work in works if not isinstance(work, Reduce)]


WORKS: dict[str, Callable[[Row], Works]] = {
    "attention": attention,
    "product": product,
    "experts": experts,
    "pointwise": pointwise,
    "step": step,
}


def seconds_of(row: Row) -> float:
    """In a graph where it was measured so."""
    return float(row.get("graph_s", row.get("eager_s", 0.0)))


def kind_of(row: Row) -> str:
    """The group of a row in the table of errors."""
    shape = row["shape"]
    if row["family"] == "attention":
        asks = [asked for _, asked, _ in shape["sequences"]]
        what = "decode" if max(asks) == 1 else "prompt" if len(asks) == 1 else "mixed"
        return f"{shape['kernel']} {shape['dtype']} {what}"
    if row["family"] == "product":
        return (
            f"{shape['kind']}, {'1 to 16' if shape['m'] <= 16 else '32 to 128' if shape['m'] <= 128 else '256 on'} rows"
        )
    if row["family"] == "experts":
        return f"{shape['kernel']} {shape['kind']} {shape['part']}"
    return str(shape.get("kernel", shape.get("model", "")))


def name_of(row: Row) -> str:
    """Its shape in a line."""
    return ", ".join(f"{key} {value}" for key, value in row["shape"].items())


def parts(shape: Row, measured: dict[str, float]) -> float | None:
    """Sum of the measured kernels of a composed step, s; None if one was not measured."""
    model, plan = model_of(shape["model"])
    (attends,), (dense,) = model.kinds[0].cached, model.kinds[0].feed_forwards
    label, heads, kv_heads = {1: "8b", 8: "70b/8"}[plan.tp], attends.heads // plan.tp, kv_heads_of(attends) // plan.tp
    sequences = shape["sequences"]
    tokens, ends = sum(count * asked for count, asked, _ in sequences), sum(count for count, *_ in sequences)

    def of(family: str, **wanted: Any) -> float:
        return measured[json.dumps([family, wanted], sort_keys=True)]

    def layer(name: str, m: int) -> float:
        return measured[f"{label} {name} {m}"]

    try:
        small = 2 * of("pointwise", kernel="add_norm", tokens=tokens, width=model.hidden)
        small += of("pointwise", kernel="silu_and_mul", tokens=tokens, width=dense.width // plan.tp)
        for kernel in ("rotary", "store"):
            small += of("pointwise", kernel=kernel, tokens=tokens, heads=heads, kv_heads=kv_heads)
        attended = of(
            "attention", kernel="flash3", heads=heads, kv_heads=kv_heads, sequences=sequences, dtype="bfloat16"
        )
        each = small + attended + sum(layer(name, tokens) for name in ("qkv", "o", "gate_up", "down"))
        return model.layers * each + layer("lm_head", ends)
    except KeyError:
        return None


class Priced:
    """Rows with what presim says."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = [row for row in rows if "error" not in row and row["family"] in WORKS]
        self.rows = [row for row in self.rows if row["shape"].get("kernel") != "schedule"]
        self.pricer = functools.cache(self._pricer)

    def _pricer(self, gpu: str) -> Pricer:
        return Pricer(choose_cluster(gpu=gpu_named(gpu).id), ServingPlan(), Overheads())

    def predicted(self, row: Row) -> float:
        """Seconds."""
        pricer, works = self.pricer(row["gpu"]), WORKS[row["family"]](row["shape"])
        return (pricer.total_ns(works) - shared_ns(pricer, works)) * 1e-9


def shared_ns(pricer: Pricer, works: Works) -> float:
    """What attention kernels of a step's decodes and prompts save as one kernel, as `presim serve` prices it."""
    kernels = [work for work in works if isinstance(work, Attention) and work.paged]
    shapes = dict.fromkeys(kernels)
    if len(shapes) < 2:
        return 0.0
    least = pricer.total_ns([msgspec.structs.replace(kernels[0], batch=1, q_len=1, kv_len=1)])
    return FIXED_SHARE * least * len(kernels) * (1 - 1 / len(shapes))


def errors(priced: Priced) -> Iterator[str]:
    """Mean and median error of presim's prices by family and kind."""
    yield from (
        "## Prices",
        "",
        "| family | kind | points | mean error | median | bias |",
        "|---|---|---:|---:|---:|---:|",
    )
    found: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for row in priced.rows:
        found[row["family"], kind_of(row)].append(priced.predicted(row) / seconds_of(row) - 1)
    for (family, kind), ratios in sorted(found.items()):
        sizes = [abs(ratio) for ratio in ratios]
        figures = statistics.mean(sizes), statistics.median(sizes), statistics.median(ratios)
        yield f"| {family} | {kind} | {len(ratios)} | " + " | ".join(f"{100 * each:+.1f} %" for each in figures) + " |"


def every(priced: Priced) -> Iterator[str]:
    """Each row."""
    yield from ("", "## Rows", "", "| family | work | in a graph, us | alone, us | presim, us | error |")
    yield "|---|---|---:|---:|---:|---:|"
    for row in priced.rows:
        measured, said = seconds_of(row), priced.predicted(row)
        alone = f"{row['alone_s'] * 1e6:.1f}" if "alone_s" in row else ""
        yield (
            f"| {row['family']} | {name_of(row)} | {measured * 1e6:.1f} | {alone} | {said * 1e6:.1f} "
            f"| {100 * (said / measured - 1):+.1f} % |"
        )


def steps(priced: Priced) -> Iterator[str]:
    """Composed steps: as a graph, as a sum of measured kernels, as a sum of prices."""
    yield from ("", "## Composed steps", "")
    yield "| step | in a graph, ms | launched one by one | sum of its kernels | presim | error | error of the sum |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    measured = {
        json.dumps([row["family"], row["shape"]], sort_keys=True): seconds_of(row)
        for row in priced.rows
        if row["family"] != "step"
    }
    for row in priced.rows:
        if row["family"] == "product" and row["shape"]["kind"] == "bfloat16":
            measured[f"{row['shape']['layer']} {row['shape']['m']}"] = seconds_of(row)
    for row in priced.rows:
        if row["family"] == "step":
            whole, said, added = row["graph_s"], priced.predicted(row), parts(row["shape"], measured)
            of_sum = f"{added * 1e3:.2f}" if added else ""
            off = f"{100 * (added / whole - 1):+.1f} %" if added else ""
            yield (
                f"| {name_of(row)} | {whole * 1e3:.2f} | {row['eager_s'] * 1e3:.2f} | {of_sum} | {said * 1e3:.2f} "
                f"| {100 * (said / whole - 1):+.1f} % | {off} |"
            )


def graphs(rows: list[Row]) -> Iterator[str]:
    """Time for each kernel of a graph, of a replay, and of its launch on the host."""
    yield from (
        "",
        "## Graphs",
        "",
        "| kernels | one replay, us | a second behind it | host | until done | for each kernel |",
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for row in rows:
        if row["family"] == "graph" and "error" not in row:
            once, twice = row["once_s"] * 1e6, row["twice_s"] * 1e6
            yield (
                f"| {name_of(row)} | {once:.2f} | {twice - once:.2f} | {row['host_s'] * 1e6:.1f} "
                f"| {row['until_done_s'] * 1e6:.1f} | {once / row['shape']['kernels']:.3f} |"
            )


def failures(rows: list[Row]) -> Iterator[str]:
    """What could not be measured."""
    done = [(row["family"], row["shape"]) for row in rows if "error" not in row]
    failed = [row for row in rows if "error" in row and (row["family"], row["shape"]) not in done]
    if failed:
        yield from ("", "## Not measured", "", "| family | work | error |", "|---|---|---|")
        yield from (f"| {row['family']} | {name_of(row)} | {row['error']} |" for row in failed)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every row, too")
    options = parser.parse_args()
    rows = lines_of(options.folder / SERVING, "gpu", "family", "shape")
    if not rows:
        raise InputError(
            f"{options.folder} holds no {SERVING}; name the folder that campaign.py --parts serving --out filled"
        )
    priced = Priced(rows)
    for part in (errors(priced), steps(priced), graphs(rows), failures(rows), every(priced) if options.rows else ()):
        print(*part, sep="\n")


if __name__ == "__main__":
    with sentences():
        main()
