"""The plan that a captured job ran by, as far as its trace tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from presim.errors import InputError
from presim.trace.schema import Group, Phase, Trace
from presim.trace.signatures import Attention, Collective, Signature

_Times: TypeAlias = Counter[Signature]
_SHARDED = "aten::split_with_sizes_copy"  # FSDP2 copies out what it gathered
_LEAST_BYTES = 1 << 16  # collectives of norms and losses are smaller


def plan_of(trace: Trace, said: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a plan that the last step of a captured rank shows; ``said``: what is known beside it.

    Raises:
        InputError: it is not known how many tokens a step has.
    """
    batch = trace.manifest.batch
    samples, tokens = batch.get("samples", 0), batch.get("tokens", 0)
    if "sequence" not in said and not (samples and tokens):
        raise InputError("the capture does not say how many samples and tokens a step has; use --seq and --mbs")
    steps = trace.steps()
    chosen = steps[-1] if steps else slice(None)
    columns = {name: trace.columns[name][chosen] for name in ("phase", "signature", "operator")}
    launched = {trace.operators[index] for index in set(columns["operator"].tolist()) if index >= 0}
    counts = Counter(index for index in columns["signature"].tolist() if index >= 0)
    times: _Times = Counter({trace.signatures[index]: count for index, count in counts.items()})
    plan: dict[str, Any] = {
        **({"sequence": tokens // samples, "micro_batch": samples} if samples and tokens else {}),
        "recompute": "full" if (columns["phase"] == Phase.RECOMPUTE).any() else "none",
        "optimizer": "adamw" if any("adam" in name for name in launched) else "none",
        "clip": any("foreach_norm" in name or "l2norm" in name for name in launched),
    }
    backends = {one.backend for one in times if isinstance(one, Attention)}
    if len(backends) == 1:
        plan["attention"] = backends.pop()
    plan |= {} if "tensor" in said else _degrees(trace, times)
    plan |= {} if "data_style" in said else _data_style(trace, times, launched)
    return plan | _batch(trace, times, {**plan, **said}, samples)


def _batch(trace: Trace, times: _Times, plan: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """Attention tells how many samples a forward pass has; a rank's step may have several."""
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
    """What data-parallel ranks share, by the collectives of gradients and parameters."""
    groups = trace.manifest.groups
    scattered = _of(times, "reduce_scatter", "float32")
    if _SHARDED not in launched:
        if scattered:
            return {"data_style": "zero1"}
        sums = [one for one in _of(times, "all_reduce") if groups[one.group].size > 1]
        return {"data_style": "ddp"} if any(one.bytes > _LEAST_BYTES for one in sums) else {}
    found: dict[str, Any] = {}
    shards = {groups[one.group] for one in scattered}
    sums = [groups[one.group] for one in _of(times, "all_reduce", "float32")]
    if len(shards) == 1 and any(not _inside(group, shard) for group in sums for shard in shards):
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


def _neighbours(group: Group) -> bool:
    return bool(group.ranks) and list(group.ranks) == list(range(group.ranks[0], group.ranks[0] + group.size))


def _degrees(trace: Trace, times: _Times) -> dict[str, Any]:
    """The tensor-parallel degree: the size of the groups of neighbours that activations are exchanged in."""
    halves = ("bfloat16", "float16")
    groups = trace.manifest.groups
    sums: Sequence[Collective] = [one for dtype in halves for one in _of(times, "all_reduce", dtype)]
    parts = [one for dtype in halves for one in _of(times, "reduce_scatter", dtype)]
    found: dict[str, Any] = {}
    for one in (*sums, *parts):
        group = groups[one.group]
        if _neighbours(group) and 1 < group.size < trace.manifest.world_size:
            found["tensor"] = max(found.get("tensor", 1), group.size)
            if one in parts:
                found["sequence_parallel"] = True
    return found
