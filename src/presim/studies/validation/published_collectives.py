"""Compares predicted collectives with published times: a table with one measurement of nccl-tests per row.

Columns: ``gpu``, ``n_gpus``, ``nodes``, ``collective``, ``size_bytes`` (as nccl-tests counts), ``time_us``; optionally
``inter_link`` (the fabric in words) and ``dtype``. `presim.studies.validation.exchanges` reads expert exchanges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from presim.cost.chain import Chain
from presim.cost.collective_logs.bandwidth_bounds import impossible
from presim.cost.price import Price
from presim.errors import PresimError
from presim.hardware.cluster import Cluster
from presim.hardware.cluster_choice import choose_cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.exchanges import CHIPS, counted_bytes, exchange, is_exchange
from presim.studies.validation.gpus import gpu_of
from presim.studies.validation.time_tables import Times
from presim.trace.dtypes import is_dtype
from presim.trace.schema import Group
from presim.trace.signatures import Collective

_KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "sendrecv": "send_recv",
}
_DTYPES = {"float": "float32", "half": "float16", "double": "float64", "fp32": "float32", "fp16": "float16"}
_DTYPES |= {"bf16": "bfloat16", "int": "int32", "char": "int8"}
_FABRICS = {("ib", 100): "ib-edr-100", ("ib", 200): "ib-hdr-200", ("ib", 400): "ib-ndr-400", ("ib", 800): "ib-xdr-800"}
_FABRICS |= {("roce", 200): "roce-200", ("roce", 400): "roce-400", ("roce", 800): "roce-800"}


def _price(case: Case, measured_us: float) -> Price:
    cluster = cluster_of(case)
    collective = exchange(case, cluster) if is_exchange(case) else _collective(case)
    group = Group("all", tuple(range(cluster.world_size)), cluster.world_size)
    if reason := impossible(collective, group.ranks, cluster, measured_us * 1e-6):
        raise CannotBuildError(f"left out: {reason}")
    price = Chain.default(cluster).price([collective], [group], cluster)[0]
    if price is None:
        raise CannotBuildError(f"nothing prices {collective.kind} on this cluster")
    return price


def _collective(case: Case) -> Collective:
    """The NCCL collective of a row."""
    kind = _KINDS.get(case.text("collective"))
    if kind is None:
        raise CannotBuildError(f"presim has no model of {case.text('collective')!r}")
    size, text = case.number("size_bytes"), case.value("size_bytes")
    if not text:
        raise CannotBuildError("size_bytes is empty")
    if size is None or not (0 < size < math.inf and size.is_integer()):
        raise CannotBuildError(f"size_bytes = {text} is not a number of bytes")
    return Collective(kind, int(size), _dtype(case), 0, 0 if kind in ("broadcast", "reduce") else -1)


def _time_us(case: Case) -> float | None:
    """The time of a row, us; for an exchange without one, the time that its bandwidth implies."""
    measured, bandwidth = case.number("time_us"), case.number("algbw_gbps")
    if measured is None and bandwidth and is_exchange(case):
        cluster = cluster_of(case)
        return counted_bytes(exchange(case, cluster), cluster) / (bandwidth * 1e3)
    return measured


def _dtype(case: Case) -> str:
    """PyTorch's name of the data type, from PyTorch's or nccl-tests' name."""
    text = case.value("dtype")
    name = _DTYPES.get(text, text) or "float32"
    if not is_dtype(name):
        raise CannotBuildError(f"dtype = {text!r} is not a type of nccl-tests or PyTorch")
    return name


def cluster_of(case: Case) -> Cluster:
    """The cluster of a row, with the fabric that its ``inter_link`` describes."""
    plain = re.split(r" \(", case.text("gpu"))[0]
    gpu = gpu_of(Case({**case.row, "gpu": CHIPS.get(plain, plain)}))
    nodes, gpus = case.count("nodes", 1), case.count("n_gpus")
    if gpus % nodes:
        raise CannotBuildError(f"{gpus} GPUs cannot be spread over {nodes} nodes evenly")
    fabric = _fabric(case, nodes)
    try:
        return choose_cluster(gpu=gpu, nodes=nodes, gpus_per_node=gpus // nodes, fabric=fabric)
    except PresimError as error:
        raise CannotBuildError(f"no such cluster: {error}") from None


def _fabric(case: Case, nodes: int) -> str | None:
    """The catalogue's fabric for the ``inter_link`` of a row; None (the node's default) if it is not stated."""
    words = case.text("inter_link").lower()
    if nodes == 1 or words.startswith("not stated") or not words:
        return None
    speed = re.search(r"(\d+) ?gb/s", words)
    if "tcpxo" in words:
        return "gcp-tcpxo-200"
    kind = "roce" if "roce" in words else "ib" if re.search(r"\bib\b|infiniband|cx-?\d", words) else ""
    fabric = _FABRICS.get((kind, int(speed[1]) if speed else 0))
    if fabric is None:
        raise CannotBuildError(f"the hardware catalogue has no fabric for {case.text('inter_link')!r}")
    return fabric


def _log(row: Mapping[str, str]) -> tuple[str, ...]:
    source = re.split(r" \(|#", row.get("source", ""))[0]
    return source, row["gpu"], row["collective"], row.get("nodes", "1"), row["n_gpus"]


COLLECTIVES = Times(
    row_name="a collective",
    required=("gpu", "n_gpus", "collective", "size_bytes", "time_us"),
    price_of=_price,
    title="Collectives",
    headings=("log", "GPU", "collective", "nodes", "GPUs"),
    group_of=_log,
    time_us_of=_time_us,
)
