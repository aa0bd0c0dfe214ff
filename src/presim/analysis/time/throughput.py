"""Tokens and samples per second of the whole job."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from presim.result import Throughput
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Attention, Collective, Signature

# Megatron's model-parallel group is tensor and pipeline parallelism together; experts share no data.
_MODEL_PARALLEL = re.compile(r"(^|[^a-z])(tp|pp|cp|sp|tensor|pipeline|context|model[^a-z]parallel)([^a-z]|$)")
_CONTEXT_PARALLEL = re.compile(r"(^|[^a-z])(cp|context)([^a-z]|$)")
_OTHER_MODEL_PARALLEL = re.compile(r"(^|[^a-z])(tp|pp|tensor|pipeline|model[^a-z]parallel)([^a-z]|$)")
_EXPERTS = re.compile(r"(^|[^a-z])(ep|etp|expert|moe)([^a-z]|$)")
# Also flattened dimensions such as dp_shard_cp.
_DATA_PARALLEL = re.compile(r"(^|[^a-z])(h?dp|ddp|h?fsdp|data|shard|replicate)([^a-z]|$)")
_MESSAGES = ("send", "recv", "send_recv")
_REDUCTIONS = ("all_reduce", "reduce_scatter")
_GRADIENTS = 1 << 20  # smallest reduction in bytes that counts as a gradient reduction, not one of norms or losses


def throughput(trace: Trace, step_time_s: float | None, step_index: int) -> Throughput:
    """Per-rank batch of a step times the ranks that read different data, per second of that step."""
    ranks = data_parallel_ranks(trace)
    per_s = ranks / step_time_s if step_time_s else None
    tokens, samples = _batch(trace, step_index)
    shards = _sequence_shards(trace, tokens // samples) if tokens and samples else 1
    return Throughput(
        tokens_per_s=shards * tokens * per_s if tokens and per_s else None,
        samples_per_s=samples * per_s if samples and per_s else None,
        steps_per_s=1 / step_time_s if step_time_s else None,
        data_parallel_ranks=ranks,
        sample=trace.manifest.step.sample if samples else "",
    )


def with_uneven_ranks(
    reported: Throughput, manifests: Mapping[int, Manifest], counts: Mapping[int, int], rank: int, step_index: int
) -> Throughput:
    """Throughput of a job in which ranks read different numbers of samples: with the mean over ranks.

    It stays as it is if ranks share data (tensor or pipeline parallelism), or if a captured rank does not show what it
    read.

    Args:
        reported: computed as if every rank read as much as the reported one.
        manifests: of the captured ranks.
        counts: number of ranks that each captured rank represents, itself included.
        rank: the reported rank.
        step_index: the reported step.
    """
    inputs = {number: manifest.step.inputs[step_index : step_index + 1] for number, manifest in manifests.items()}
    shares_data = reported.data_parallel_ranks != manifests[rank].world_size
    if shares_data or len(set(inputs.values())) < 2 or not all(inputs.values()):
        return reported

    def scaled(rate: float | None, column: int) -> float | None:
        amount = inputs[rank][0][column]
        total = sum(counts[number] * steps[0][column] for number, steps in inputs.items())
        return rate * total / sum(counts[number] for number in inputs) / amount if rate and amount else rate

    return msgspec.structs.replace(
        reported,
        tokens_per_s=scaled(reported.tokens_per_s, 0),
        samples_per_s=scaled(reported.samples_per_s, 1),
        sample=f"{reported.sample}, as the mean of all ranks" if reported.sample else "",
    )


def _batch(trace: Trace, step_index: int) -> tuple[int | None, int | None]:
    """Tokens and samples of one rank's step.

    Those that this step read; if it called no model, as replays of graphs do not, those of a usual step.
    """
    inputs, batch = trace.manifest.step.inputs, trace.manifest.batch
    if step_index < len(inputs) and any(inputs[step_index]):
        return inputs[step_index]
    return batch.get("tokens"), batch.get("samples")


def data_parallel_ranks(trace: Trace) -> int:
    """Number of ranks that read different data: the world size without tensor, pipeline and context parallelism.

    Taken from the manifest (``batch["data_parallel_ranks"]``) if it is there, else from the names of process groups. If
    these do not tell and ranks exchange messages, as pipeline stages do, from the ranks that reduce gradients together.
    """
    manifest = trace.manifest
    if stated_ranks := manifest.batch.get("data_parallel_ranks"):
        return stated_ranks
    if manifest.devices > 1:  # one process, whose batch is the job's
        return 1
    if are_separate_programs(manifest):
        return max(manifest.world_size // processes_per_gpu(manifest), 1)
    sharing = [group for group in manifest.groups if _shares_data(group, manifest.world_size)]
    shared = _ranks_in_any(sharing)
    if _are_neighbours(sharing) or (shared == 1 and _has_messages(trace.signatures)):
        return _reducing_ranks(trace)
    return max(manifest.world_size // shared, 1)


def are_separate_programs(manifest: Manifest) -> bool:
    """Whether the ranks of a captured job never communicated with each other, though the script ended well."""
    is_complete = manifest.origin == "captured" and manifest.exit in ("ok", "stopped")
    is_alone = all(group.is_within_process for group in manifest.groups)
    return is_complete and manifest.world_size > 1 and manifest.devices == 1 and is_alone


def processes_per_gpu(manifest: Manifest) -> int:
    """Processes that share a GPU with this rank's, itself included.

    If it uses several GPUs of its node, the ranks whose GPUs these are use them, too.
    """
    gpus = sum(use.own_bytes > 0 for use in manifest.gpus)
    return max(gpus, 1, *(use.processes for use in manifest.gpus))


def _sequence_shards(trace: Trace, input_length: int) -> int:
    """Ranks of context parallelism, if each one's model is given a part of the sequence, as most programs do; else 1.

    A model that is given whole sequences and splits them itself has queries shorter than its input.
    """
    if trace.manifest.batch.get("data_parallel_ranks"):
        return 1
    queries = [signature.q_len for signature in trace.signatures if isinstance(signature, Attention)]
    if queries and max(queries) < input_length:
        return 1
    sizes = [group.size for group in trace.manifest.groups if _is_context_parallel(group)]
    return max(sizes, default=1)


def _is_context_parallel(group: Group) -> bool:
    name = group.name.lower()
    is_other = _DATA_PARALLEL.search(name) or _EXPERTS.search(name) or _OTHER_MODEL_PARALLEL.search(name)
    return bool(_CONTEXT_PARALLEL.search(name)) and not is_other


def _shares_data(group: Group, world_size: int) -> bool:
    """Whether the members of a process group read the same data, by its name."""
    name = group.name.lower()
    is_other = _DATA_PARALLEL.search(name) or _EXPERTS.search(name)
    return bool(_MODEL_PARALLEL.search(name)) and not is_other and group.size <= world_size


def _ranks_in_any(groups: Sequence[Group]) -> int:
    """Ranks that are together with this one along the dimensions of these groups, of which some span several."""
    unknown = {group.name: group.size for group in groups if not group.ranks}  # those are taken as dimensions
    members = {frozenset(group.ranks) for group in groups if group.ranks}
    largest = [ranks for ranks in members if not any(ranks < larger for larger in members)]
    ranks = math.prod(unknown.values())
    for index, group in enumerate(sorted(largest, key=len, reverse=True)):
        common = max((len(group & other) for other in sorted(largest, key=len, reverse=True)[:index]), default=1)
        ranks *= len(group) // common
    return ranks


def _are_neighbours(groups: Sequence[Group]) -> bool:
    """Whether this rank's stages of a pipeline are only known by its neighbours, a pair each."""
    pairs = collections.Counter(group.name for group in groups if len(group.ranks) == 2)
    larger = [set(group.ranks) for group in groups if len(group.ranks) > 2]
    return any(
        pairs[group.name] > 1 and not any(set(group.ranks) <= ranks for ranks in larger)
        for group in groups
        if len(group.ranks) == 2
    )


def _has_messages(signatures: Iterable[Signature]) -> bool:
    return any(isinstance(signature, Collective) and signature.kind in _MESSAGES for signature in signatures)


def _reducing_ranks(trace: Trace) -> int:
    groups, world_size = trace.manifest.groups, trace.manifest.world_size
    reducing = [
        groups[signature.group]
        for signature in trace.signatures
        if isinstance(signature, Collective) and signature.kind in _REDUCTIONS and signature.bytes >= _GRADIENTS
        if 0 <= signature.group < len(groups)
    ]
    sizes = [group.size for group in reducing if not _shares_data(group, world_size)]
    return max((size for size in sizes if size <= world_size), default=1)
