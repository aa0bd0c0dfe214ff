"""Names and arguments as Kineto writes them: of kernels, collectives, process groups, processes and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from presim.trace.collective import Collective
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Copy, Gemm, Signature, family

FIRST_STREAM = 7  # CUPTI's number of the default stream
_COPIES = {
    "h2d": "Memcpy HtoD (Pageable -> Device)",
    "d2h": "Memcpy DtoH (Device -> Pageable)",
    "d2d": "Memcpy DtoD (Device -> Device)",
    "peer": "Memcpy PtoP (Device -> Device)",
}
_NCCL = {
    "all_reduce": "AllReduce_Sum",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter_Sum",
    "broadcast": "Broadcast",
    "reduce": "Reduce_Sum",
}
_CALLED = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base"}
_TYPES = {
    "float32": ("Float", "float"),
    "float64": ("Double", "double"),
    "bfloat16": ("BFloat16", "c10::BFloat16"),
    "float16": ("Half", "c10::Half"),
    "int64": ("Long", "long int"),
    "int32": ("Int", "int"),
    "uint8": ("Byte", "unsigned char"),
    "int8": ("Char", "signed char"),
    "float8_e4m3fn": ("Float8_e4m3fn", "c10::Float8_e4m3fn"),
    "float8_e5m2": ("Float8_e5m2", "c10::Float8_e5m2"),
}

Json = dict[str, Any]


def distributed(manifest: Manifest) -> Json:
    """The process groups, as a profile of PyTorch has them in ``distributedInfo``."""
    config = [
        {
            "pg_name": str(index),
            "pg_desc": group.name,
            "backend_config": "cuda:nccl",
            "pg_size": group.size,
            "ranks": list(group.ranks),
        }
        for index, group in enumerate(manifest.groups)
    ]
    return {
        "backend": "nccl",
        "rank": manifest.rank,
        "world_size": manifest.world_size,
        "pg_count": len(config),
        "pg_config": config,
    }


def communication(signature: Collective, groups: Sequence[Group]) -> Json:
    """Arguments of a collective: message sizes in elements, and the group with its ranks."""
    has_group = 0 <= signature.group < len(groups)
    group = groups[signature.group] if has_group else None
    size = group.size if group else 1
    elements = signature.bytes // dtype_bytes(signature.dtype)
    sent_elements = elements // size if signature.kind == "all_gather" else elements
    received_elements = elements // size if signature.kind == "reduce_scatter" else elements
    arguments: Json = {
        "Collective name": _CALLED.get(signature.kind, signature.kind),
        "dtype": _TYPES.get(signature.dtype, (signature.dtype, ""))[0],
        "In msg nelems": sent_elements,
        "Out msg nelems": received_elements,
        "In split size": "[]",
        "Out split size": "[]",
        "Group size": size,
        "Process Group Name": str(signature.group),
        "Process Group Description": group.name if group else "",
        "Process Group Ranks": str(list(group.ranks)) if group else "[]",
    }
    if group is not None and signature.kind in ("send", "recv") and 0 <= signature.peer < len(group.ranks):
        arguments["Dst Rank" if signature.kind == "send" else "Src Rank"] = group.ranks[signature.peer]
    return arguments


def names(host: int, device: int, streams: Sequence[int]) -> Iterator[Json]:
    """Metadata events with the names and the order of processes and threads, for viewers."""
    rows: list[tuple[str, int, int, Json]] = [
        ("process_name", host, 0, {"name": "python"}),
        ("process_labels", host, 0, {"labels": "CPU"}),
        ("process_sort_index", host, 0, {"sort_index": host}),
        ("thread_name", host, host, {"name": f"thread {host} (python)"}),
        ("process_name", device, 0, {"name": "python"}),
        ("process_labels", device, 0, {"labels": f"GPU {device}"}),
        ("process_sort_index", device, 0, {"sort_index": 5_000_000 + device}),
    ]
    for stream in streams:
        tid = FIRST_STREAM + stream
        rows.append(("thread_name", device, tid, {"name": f"stream {tid}"}))
        rows.append(("thread_sort_index", device, tid, {"sort_index": tid}))
    for name, pid, tid, arguments in rows:
        yield {"ph": "M", "name": name, "ts": 0, "pid": pid, "tid": tid, "args": arguments}


def kernel(signature: Signature, operator: str) -> str:
    """A kernel's name: NCCL's own name for collectives, else the name in the trace or the signature family."""
    if isinstance(signature, Collective):
        word = _NCCL.get(signature.kind, "SendRecv")
        return f"ncclDevKernel_{word}(ncclDevKernelArgsStorage<4096ul>)"
    if isinstance(signature, Copy):
        name = _COPIES.get(signature.direction, "Memset (Device)")
        return name.replace("Pageable", "Pinned") if signature.pinned else name
    return str(getattr(signature, "name", "")) or f"{family(signature)}_kernel<{operator}>"


def shapes(signature: Signature) -> Json:
    """Input shapes of a matrix product, as the profiler records them. Traces lack those of other work."""
    if not isinstance(signature, Gemm):
        return {}
    name = _TYPES.get(signature.dtype, ("", signature.dtype))[1]
    a_shape, b_shape = [signature.m, signature.k], [signature.k, signature.n]
    if signature.batch > 1:
        a_shape, b_shape = [signature.batch, *a_shape], [signature.batch, *b_shape]
    return {"Input Dims": [a_shape, b_shape], "Input type": [name, name]}
