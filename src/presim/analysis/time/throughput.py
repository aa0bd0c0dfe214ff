"""Tokens and samples per second of the whole job."""

from __future__ import annotations

import re
from collections.abc import Iterable

from presim.result import Throughput
from presim.trace.schema import Trace
from presim.trace.signatures import Collective, Signature

_MODEL_PARALLEL = re.compile(r"(^|[^a-z])(tp|pp|cp|sp|tensor|pipeline|context)([^a-z]|$)")
# Also flattened dimensions such as dp_shard_cp.
_DATA_PARALLEL = re.compile(r"(^|[^a-z])(h?dp|ddp|h?fsdp|data|shard|replicate)([^a-z]|$)")
_MESSAGES = ("send", "recv", "send_recv")
_REDUCTIONS = ("all_reduce", "reduce_scatter")
_GRADIENTS = 1 << 20  # smallest reduction in bytes that counts as a gradient reduction, not one of norms or losses


def throughput(trace: Trace, step_time_s: float | None) -> Throughput:
    """Per-rank batch times the ranks that read different data, per second of a step."""
    ranks = data_parallel_ranks(trace)
    per_s = ranks / step_time_s if step_time_s else None
    batch = trace.manifest.batch
    tokens, samples = batch.get("tokens"), batch.get("samples")
    return Throughput(
        tokens_per_s=tokens * per_s if tokens and per_s else None,
        samples_per_s=samples * per_s if samples and per_s else None,
        steps_per_s=1 / step_time_s if step_time_s else None,
        data_parallel_ranks=ranks,
    )


def data_parallel_ranks(trace: Trace) -> int:
    """Number of ranks that read different data: the world size without tensor, pipeline and context parallelism.

    Taken from the manifest (``batch["data_parallel_ranks"]``) if it is there, else from the names of process groups. If
    these do not tell and ranks exchange messages, as pipeline stages do, from the ranks that reduce gradients together.
    """
    manifest = trace.manifest
    if known := manifest.batch.get("data_parallel_ranks"):
        return known
    shared = 1
    for group in {group.name: group for group in manifest.groups}.values():
        name = group.name.lower()
        if _MODEL_PARALLEL.search(name) and not _DATA_PARALLEL.search(name) and group.size <= manifest.world_size:
            shared *= group.size
    if shared == 1 and _has_messages(trace.signatures):
        return _reducing_ranks(trace)
    return max(manifest.world_size // shared, 1)


def _has_messages(signatures: Iterable[Signature]) -> bool:
    return any(isinstance(signature, Collective) and signature.kind in _MESSAGES for signature in signatures)


def _reducing_ranks(trace: Trace) -> int:
    groups = trace.manifest.groups
    sizes = [
        groups[signature.group].size
        for signature in trace.signatures
        if isinstance(signature, Collective) and signature.kind in _REDUCTIONS and signature.bytes >= _GRADIENTS
        if 0 <= signature.group < len(groups)
    ]
    return max((size for size in sizes if size <= trace.manifest.world_size), default=1)
