"""Exports the model that a request names: ``python -m presim.composition.graph.export REQUEST OUT``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import torch

from presim.composition.graph import fused_functions
from presim.composition.graph.export import vllm_models
from presim.composition.graph.export.meta_models import from_config, from_factory, shorten
from presim.composition.graph.export.step import record
from presim.composition.graph.libraries import delta_rule, kimi_delta, library_kernels, mamba, selective_scan
from presim.composition.graph.sizes import choose_witnesses
from presim.system.files import decode_json, read_bytes, write_file

_FUNCTIONS: dict[str, Callable[..., Any]] = {  # of libraries, by the names under which transformers looks for them
    "causal_conv1d_fn": mamba.causal_conv1d_fn,
    "mamba_chunk_scan_combined": mamba.mamba_chunk_scan_combined,
    "mamba_split_conv1d_scan_combined": mamba.mamba_split_conv1d_scan_combined,
    "mamba_inner_fn": selective_scan.mamba_inner_fn,
    "selective_scan_fn": selective_scan.selective_scan_fn,
    "chunk_gated_delta_rule": delta_rule.chunk_gated_delta_rule,
    "chunk_kda": kimi_delta.chunk_kda,
}


class ExportRequest(msgspec.Struct):
    """What to trace."""

    model: str
    dtype: str  # of floating-point parameters


def main(request_path: str, out: str) -> None:
    """Read a request, write recordings."""
    fused_functions.install()
    library_kernels.install(_FUNCTIONS)
    request = decode_json(read_bytes(request_path, "export the model again"), ExportRequest)
    is_served = request.model.startswith(vllm_models.PREFIX)
    make = vllm_models.build if is_served else from_config if Path(request.model).exists() else from_factory
    model = make(request.model, getattr(torch, request.dtype)).train(not is_served)
    repeats = shorten(model)
    constants: Iterable[int] = {size for tensor in model.parameters() for size in tensor.shape}
    recordings = []
    for witnesses in choose_witnesses(constants):
        recordings.append(record(model, witnesses.batch, witnesses.sequence, repeats, request.model))
        model.zero_grad()
    vllm_models.check(recordings[0].calls)
    write_file(out, msgspec.msgpack.encode(recordings))


if __name__ == "__main__":
    main(*sys.argv[1:])
