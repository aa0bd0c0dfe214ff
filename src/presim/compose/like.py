"""The plan that a captured job ran by, as far as its trace tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim.errors import InputError
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Attention, Collective


def plan_of(trace: Trace, said: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a plan that the last step of a captured rank shows; ``said``: what is known beside it.

    Raises:
        InputError: it is not known how many tokens a step has.
    """
    batch = trace.manifest.batch
    samples, tokens = batch.get("samples", 0), batch.get("tokens", 0)
    if "micro_batch" in said:
        samples = int(said["micro_batch"])
    if "sequence" not in said and not (samples and tokens):
        raise InputError("the capture does not say how many samples and tokens a step has; use --seq and --mbs")
    steps = trace.steps()
    chosen = steps[-1] if steps else slice(None)
    columns = {name: trace.columns[name][chosen] for name in ("phase", "signature", "operator")}
    launched = {trace.operators[index] for index in set(columns["operator"].tolist()) if index >= 0}
    signatures = [trace.signatures[index] for index in set(columns["signature"].tolist()) if index >= 0]
    plan: dict[str, Any] = {
        **({"sequence": tokens // samples, "micro_batch": samples} if samples and tokens else {}),
        "recompute": "full" if (columns["phase"] == Phase.RECOMPUTE).any() else "none",
        "optimizer": "adamw" if any("adamw" in name for name in launched) else "none",
        "clip": any("foreach_norm" in name for name in launched),
    }
    backends = {one.backend for one in signatures if isinstance(one, Attention)}
    if len(backends) == 1:
        plan["attention"] = backends.pop()
    return plan | ({} if "tensor" in said else _degrees(trace, signatures))


def _degrees(trace: Trace, signatures: list[Any]) -> dict[str, Any]:
    """The tensor-parallel degree: the size of the groups of neighbours that activations are reduced in."""
    sizes = {
        group.size
        for one in signatures
        if isinstance(one, Collective) and one.group >= 0 and one.dtype in ("bfloat16", "float16")
        if one.kind == "all_reduce"
        for group in (trace.manifest.groups[one.group],)
        if group.ranks and list(group.ranks) == list(range(group.ranks[0], group.ranks[0] + group.size))
    }
    return {"tensor": max(sizes)} if sizes and max(sizes) < trace.manifest.world_size else {}
