"""Tokens and samples per second of the whole job."""

from __future__ import annotations

import re

from presim.result import Throughput
from presim.trace.schema import Manifest

_MODEL_PARALLEL = re.compile(r"(^|[^a-z])(tp|pp|cp|sp|tensor|pipeline|context)([^a-z]|$)")
# Also flattened dimensions such as dp_shard_cp.
_DATA_PARALLEL = re.compile(r"(^|[^a-z])(h?dp|ddp|h?fsdp|data|shard|replicate)([^a-z]|$)")


def throughput(manifest: Manifest, step_time_s: float | None) -> Throughput:
    """Per-rank batch times the ranks that read different data, per second of a step."""
    ranks = data_parallel_ranks(manifest)
    per_s = ranks / step_time_s if step_time_s else None
    tokens, samples = manifest.batch.get("tokens"), manifest.batch.get("samples")
    return Throughput(
        tokens_per_s=tokens * per_s if tokens and per_s else None,
        samples_per_s=samples * per_s if samples and per_s else None,
        steps_per_s=1 / step_time_s if step_time_s else None,
        data_parallel_ranks=ranks,
    )


def data_parallel_ranks(manifest: Manifest) -> int:
    """Ranks that read different data: all but those that share a model by tensor, pipeline or context parallelism.

    As the manifest says it (``batch["data_parallel_ranks"]``), else judged by the names of the process groups.
    """
    if known := manifest.batch.get("data_parallel_ranks"):
        return known
    shared = 1
    for group in {group.name: group for group in manifest.groups}.values():
        name = group.name.lower()
        if _MODEL_PARALLEL.search(name) and not _DATA_PARALLEL.search(name) and group.size <= manifest.world_size:
            shared *= group.size
    return max(manifest.world_size // shared, 1)
