"""Fits the time of inference engines' expert kernels, and tests it on held-out shapes.

    python validation/fit_experts.py AICONFIGURATOR [--toml FILE]

AICONFIGURATOR is the folder with `data/GPU/moe/ENGINE/VERSION/moe_perf.parquet`. The constants are those of
`src/presim/hardware/constants/experts.toml`; `presim.serving.steps.routed_experts` explains each. Held out: every
second shape (hidden size, experts, experts per token) of a table, predicted by constants of the others. Takes two
minutes.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cli.script import sentences
from presim.errors import InputError
from presim.hardware import catalogue
from presim.serving.steps.routed_experts import ExpertConstants, Routed, seconds
from presim.system.files import write_file

GPUS = {
    "a100_sxm": "a100-80gb-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200",
    "b200_sxm": "b200",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
TYPES = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "fp4", "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4-16", "w4a8_mxfp4_mxfp8": "mxfp4-8",
}  # fmt: skip
_START = (15.0, 1.0, 0.6, 0.4, 8.0, 0.8, 2.0, 0.1)
_LEAST = (0.0, 0.0, 0.05, 0.02, 0.0, 0.05, 1.0, 0.0)
_MOST = (200.0, 20.0, 1.0, 1.0, 128.0, 1.0, 6.0, 0.6)
_DISTRIBUTION, _MOST_TOKENS, _MOST_RANKS, _LEAST_WIDTH, _POINTS = "power_law_1.01", 16384, 16, 96, 700
# vLLM's Triton kernel takes 0.22 of its time on an H100 (results/serving-h100.md): nobody serves FP8 with this one.
_SLOW = ("hopper", "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts")
Case = tuple[Routed, str, float]  # work, GPU, seconds


def cases(root: Path) -> dict[tuple[str, str, str], list[Case]]:
    """By generation, engine and type: the engine's fastest kernel for each size."""
    found: dict[tuple[str, str, str], dict[tuple[str, Routed], float]] = collections.defaultdict(dict)
    for path in sorted(root.glob("data/*/moe/*/*/moe_perf.parquet")):
        gpu = GPUS.get(path.parts[-5])
        if gpu is None:
            continue
        for row in _rows(path):
            kind = TYPES.get(row["moe_dtype"])
            width = row["inter_size"] // row["moe_tp_size"]
            slow = (catalogue.gpu(gpu).architecture, row["kernel_source"]) == _SLOW
            if kind is None or slow or not _used(row) or width < _LEAST_WIDTH:
                continue
            work = Routed(
                row["num_tokens"], row["hidden_size"], width, row["topk"], row["num_experts"], row["moe_ep_size"], kind
            )
            key = catalogue.gpu(gpu).architecture, path.parts[-3], kind
            before = found[key].get((gpu, work), np.inf)
            found[key][gpu, work] = min(before, row["latency"] * 1e-3)
    if not found:
        raise InputError(f"{root} has no data/GPU/moe tables; name the folder of aiconfigurator's measurements")
    return {key: [(work, gpu, took) for (gpu, work), took in rows.items()] for key, rows in sorted(found.items())}


def _rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _used(row: dict[str, Any]) -> bool:
    return (
        row["distribution"] == _DISTRIBUTION
        and "nongated" not in row["kernel_source"]
        and row["moe_ep_size"] <= _MOST_RANKS
        and row["latency"] > 0
        and row["num_tokens"] <= _MOST_TOKENS
    )


def errors(rows: Sequence[Case], constants: ExpertConstants) -> NDArray[np.float64]:
    """Logarithms of predicted over measured times."""
    return np.array([np.log(seconds(work, catalogue.gpu(gpu), constants) / took) for work, gpu, took in rows])


def fitted(rows: Sequence[Case]) -> ExpertConstants:
    """Robust least squares of the logarithmic errors."""
    from scipy.optimize import least_squares

    rows = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))[:_POINTS]]

    def residuals(values: Sequence[float]) -> NDArray[np.float64]:
        return errors(rows, _constants(values))

    found = least_squares(residuals, _START, bounds=(_LEAST, _MOST), loss="soft_l1", f_scale=0.1)
    return _constants(found.x)


def _constants(values: Sequence[float]) -> ExpertConstants:
    names = ("start_us", "doubling_us", "bandwidth", "rate", "padding", "spread", "blend", "imbalance")
    return msgspec.convert({name: float(value) for name, value in zip(names, values)}, ExpertConstants)


def held_out(rows: Sequence[Case]) -> NDArray[np.float64]:
    """Absolute relative errors of each shape with constants of the other half of the shapes."""
    shapes = sorted({_shape(work) for work, _, _ in rows})
    parts = []
    for half in (0, 1):
        out = [row for row in rows if shapes.index(_shape(row[0])) % 2 == half]
        rest = [row for row in rows if shapes.index(_shape(row[0])) % 2 != half]
        if out and rest:
            parts.append(np.abs(np.expm1(errors(out, fitted(rest)))))
    return np.concatenate(parts) if parts else np.array([])


def _shape(work: Routed) -> tuple[int, int, int]:
    return work.hidden, work.count, work.top_k


def main() -> None:
    """Fit, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tables", type=Path)
    parser.add_argument("--toml", type=Path)
    options = parser.parse_args()
    lines: list[str] = []
    for (architecture, engine, kind), rows in cases(options.tables).items():
        constants, wrong = fitted(rows), held_out(rows)
        inside = np.abs(np.expm1(errors(rows, constants)))
        wrong = wrong if len(wrong) else inside
        lines.append(f"\n[{architecture}.{engine}.{kind}]")
        for name, value in msgspec.structs.asdict(constants).items():
            if name not in ("uncertainty", "points", "held_out_median"):
                lines.append(f"{name} = {value:.4g}")
        lines.append(f"uncertainty = {float(np.percentile(wrong, 80)):.2g}")
        lines.append(f"points = {len(rows)}")
        lines.append(f"held_out_median = {float(np.median(wrong)):.2g}")
        print("\n".join(lines[-12:]), flush=True)
    if options.toml:
        write_file(options.toml, ("\n".join(lines).lstrip() + "\n").encode())


if __name__ == "__main__":
    with sentences():
        main()
