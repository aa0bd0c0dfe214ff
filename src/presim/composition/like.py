"""Derive the plan of a captured job from its trace, as far as the trace shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from presim.errors import InputError
from presim.trace.schema import Group, Phase, Trace
from presim.trace.signatures import Attention, Collective, Signature

_Times: TypeAlias = Counter[Signature]
_SHARDED = "aten::split_with_sizes_copy"  # FSDP2 copies out gathered parameters with it
_LEAST_BYTES = 1 << 16  # collectives of norms and losses are smaller than this


def plan_of(trace: Trace, known: Mapping[str, Any]) -> dict[str, Any]:
    """Plan fields that the last step of a captured rank shows; ``known``: fields given by the user.

    Raises:
        InputError: the number of tokens per step is unknown.
    """
    batch = trace.manifest.batch
    samples, tokens = batch.get("samples", 0), batch.get("tokens", 0)
    if "sequence" not in known and not (samples and tokens):
        raise InputError("the capture does not show how many samples and tokens a step has; use --seq and --mbs")
    steps = trace.steps()
    chosen = steps[-1] if steps else slice(None)
    columns = {name: trace.columns[name][chosen] for name in ("phase", "signature", "operator")}
    launched = {trace.operators[index] for index in set(columns["operator"].tolist()) if index >= 0}
    counts = Counter(index for index in columns["signature"].tolist() if index >= 0)
    times: _Times = Counter({trace.signatures[index]: count for index, count in counts.items()})
    plan: dict[str, Any] = {
        **({"sequence": tokens // samples, "micro_batch": samples} if samples and tokens else {}),
        "recompute": "full" if (columns["phase"] == Phase.RECOMPUTE).any() else "none",
        "optimizer": "adamw" if _has_adam(launched) else "none",
        "clip": any("foreach_norm" in name or "l2norm" in name for name in launched),
    }
    backends = {one.backend for one in times if isinstance(one, Attention)}
    if len(backends) == 1:
        plan["attention"] = backends.pop()
    plan |= {} if "tensor" in known else _degrees(trace, times)
    plan |= {} if "data_style" in known else _data_style(trace, times, launched)
    batch_of = _batch(trace, times, {**plan, **known}, samples)
    micros = samples // int({**plan, **batch_of, **known}.get("micro_batch", samples) or 1)
    return plan | _kept(trace, times, micros) | batch_of


def _has_adam(launched: set[str]) -> bool:
    """Whether Adam's own kernel runs, or the operators of PyTorch's version without it, for lists or single tensors."""
    unfused = ("lerp_", "addcmul_", "addcdiv_")  # first moment, second moment, update
    parts = [{f"aten::{prefix}{name}" for name in unfused} for prefix in ("_foreach_", "")]
    return any("adam" in name for name in launched) or any(part <= launched for part in parts)


def _kept(trace: Trace, times: _Times, micros: int) -> dict[str, Any]:
    """Whether FSDP2 keeps the last block gathered: then one gather per micro-batch is missing."""
    groups = {one.group for one in _of(times, "reduce_scatter", "float32")}
    scattered = sum(times[one] for one in _of(times, "reduce_scatter", "float32"))
    gathered = sum(times[one] for one in _of(times, "all_gather") if one.group in groups)
    return {"keep_last": True} if len(groups) == 1 and gathered == 2 * (scattered - micros) > scattered else {}


def _batch(trace: Trace, times: _Times, plan: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """Micro-batch and global batch; the batch dimension of attention gives the samples of one forward pass."""
    batches = {one.batch for one in times if isinstance(one, Attention) and one.direction == "forward"}
    micro = int(plan.get("micro_batch", samples))
    if "micro_batch" not in plan or micro == samples:
        micro = batches.pop() if len(batches) == 1 else micro
    if not samples or not micro or samples % micro:
        return {}
    others = int(plan.get("tensor", 1)) * int(plan.get("context", 1)) * int(plan.get("pipeline", 1))
    micros = samples // micro
    many = {"global_batch": samples * (trace.manifest.world_size // others)} if micros > 1 else {}
    return {"micro_batch": micro, **many}


def _data_style(trace: Trace, times: _Times, launched: set[str]) -> dict[str, Any]:
    """The data-parallel style, derived from the collectives of gradients and parameters."""
    groups = trace.manifest.groups
    scattered = _of(times, "reduce_scatter", "float32")
    if _SHARDED not in launched:
        if scattered:
            return {"data_style": "zero1"}
        sums = [one for one in _of(times, "all_reduce") if groups[one.group].size > 1]
        return {"data_style": "ddp"} if any(one.bytes > _LEAST_BYTES for one in sums) else {}
    found: dict[str, Any] = {}
    shards = {groups[one.group] for one in scattered}
    between = {groups[one.group] for one in _of(times, "all_reduce", "float32")}
    if len(shards) == 1 and any(not _inside(group, shard) for group in between for shard in shards):
        found = {"data_style": "hsdp", "shard": shards.copy().pop().size}
    gathers = [one for one in _of(times, "all_gather") if groups[one.group] in shards]
    if gathers and sum(times[one] for one in gathers) <= sum(times[one] for one in scattered):
        found["reshard"] = False
    return found


def _of(times: _Times, kind: str, dtype: str = "") -> list[Collective]:
    found = [one for one in times if isinstance(one, Collective) and one.kind == kind and one.group >= 0]
    return [one for one in found if one.bytes > _LEAST_BYTES and dtype in ("", one.dtype)]


def _inside(group: Group, other: Group) -> bool:
    return set(group.ranks) <= set(other.ranks)


def _is_consecutive(group: Group) -> bool:
    return bool(group.ranks) and list(group.ranks) == list(range(group.ranks[0], group.ranks[0] + group.size))


def _degrees(trace: Trace, times: _Times) -> dict[str, Any]:
    """The tensor-parallel degree: the size of the groups of consecutive ranks that exchange activations."""
    halves = ("bfloat16", "float16")
    groups = trace.manifest.groups
    sums: Sequence[Collective] = [one for dtype in halves for one in _of(times, "all_reduce", dtype)]
    parts = [one for dtype in halves for one in _of(times, "reduce_scatter", dtype)]
    found: dict[str, Any] = {}
    for one in (*sums, *parts):
        group = groups[one.group]
        if _is_consecutive(group) and 1 < group.size < trace.manifest.world_size:
            found["tensor"] = max(found.get("tensor", 1), group.size)
            if one in parts:
                found["sequence_parallel"] = True
    return found
