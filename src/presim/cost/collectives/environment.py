"""NCCL's environment variables: what a user forbids or forces, from the script's environment or a cluster file.

Names and meaning: NCCL documentation, "Environment Variables" (2.27). Of the variables that change how fast collectives
are, those that are read are listed in `READ`; others are named by `unread`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from presim.errors import InputError

ALGORITHMS = ("ring", "tree", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
READ = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NVLS_ENABLE",
    "NCCL_PAT_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_IB_DISABLE",
)
# They change the speed in ways that are not modelled.
_UNREAD = frozenset((
    "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", "NCCL_IB_HCA", "NCCL_CROSS_NIC",
    "NCCL_COLLNET_ENABLE", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_TUNER_PLUGIN", "NCCL_NET_PLUGIN", "NCCL_NET",
    "NCCL_PXN_DISABLE", "NCCL_P2P_PXN_LEVEL", "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS",
    "NCCL_NCHANNELS_PER_NET_PEER", "NCCL_NVLS_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS", "NCCL_SHM_DISABLE",
    "NCCL_MNNVL_ENABLE", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_NET_GDR_READ", "NCCL_IB_MERGE_NICS", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE",
    "NCCL_THREAD_THRESHOLDS", "NCCL_GRAPH_FILE", "NCCL_TOPO_FILE", "NCCL_CTA_POLICY", "NCCL_CGA_CLUSTER_SIZE",
))  # fmt: skip

_FUNCTIONS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
_MOST_CHANNELS = 64


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Algorithms, protocols and transports that NCCL may use."""

    algorithms: tuple[tuple[str, tuple[str, ...]], ...] = (("", ALGORITHMS),)  # by kind of collective; "": any other
    protocols: tuple[tuple[str, tuple[str, ...]], ...] = (("", PROTOCOLS),)
    fewest_channels: int = 1
    most_channels: int = _MOST_CHANNELS
    peer_to_peer: bool = True  # NVLink and PCIe between GPUs, else through the host's memory
    rdma: bool = True  # InfiniBand or RoCE between nodes, else sockets

    def allows(self, kind: str, algorithm: str, protocol: int) -> bool:
        """Whether NCCL may use it."""
        if protocol not in self._protocols(kind):
            return False
        allowed = dict(self.algorithms).get(kind) or dict(self.algorithms).get("", ALGORITHMS)
        return algorithm in allowed

    def _protocols(self, kind: str) -> list[int]:
        allowed = dict(self.protocols).get(kind) or dict(self.protocols).get("", PROTOCOLS)
        return [place for place, name in enumerate(PROTOCOLS) if name in allowed] or [0, 1, 2]


def tuning_of(*environments: Mapping[str, str]) -> Tuning:
    """From variables; those of later arguments come before those of earlier ones.

    Raises:
        InputError: a variable has a value that NCCL would reject.
    """
    merged = {name: value for each in environments for name, value in each.items() if name in READ}
    return _parsed(tuple(sorted(merged.items())))


def unread(environment: Mapping[str, str]) -> list[str]:
    """Variables that change the speed of collectives and are not modelled."""
    return sorted(name for name in environment if name in _UNREAD)


@functools.lru_cache(maxsize=64)
def _parsed(variables: tuple[tuple[str, str], ...]) -> Tuning:
    said = dict(variables)
    algorithms = _lists("NCCL_ALGO", said.get("NCCL_ALGO", ""), ALGORITHMS)
    removed = [name for name in ("NVLS", "PAT") if _number(said, f"NCCL_{name}_ENABLE", 1) == 0]
    for name in removed:
        gone = ("nvls", "nvlstree") if name == "NVLS" else ("pat",)
        algorithms = tuple((kind, tuple(one for one in allowed if one not in gone)) for kind, allowed in algorithms)
    fewest = max(_number(said, "NCCL_MIN_NCHANNELS", 1), _number(said, "NCCL_MIN_CTAS", 1))
    most = min(_number(said, "NCCL_MAX_NCHANNELS", _MOST_CHANNELS), _number(said, "NCCL_MAX_CTAS", _MOST_CHANNELS))
    if not most >= 1 or fewest > most:
        raise InputError(f"NCCL is asked for at least {fewest} and at most {most} channels; correct NCCL_*_NCHANNELS")
    return Tuning(
        algorithms=algorithms,
        protocols=_lists("NCCL_PROTO", said.get("NCCL_PROTO", ""), PROTOCOLS),
        fewest_channels=fewest,
        most_channels=most,
        peer_to_peer=_number(said, "NCCL_P2P_DISABLE", 0) == 0,
        rdma=_number(said, "NCCL_IB_DISABLE", 0) == 0,
    )


def _number(said: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(said.get(name, default))
    except ValueError:
        raise InputError(f"{name}={said[name]} must be a whole number; correct the variable") from None


def _lists(name: str, text: str, known: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """``ring,tree``, ``^nvls`` (all but), or by function: ``allreduce:tree,ring;broadcast:ring``."""
    found: dict[str, tuple[str, ...]] = {"": known}
    for part in filter(None, text.lower().replace(" ", "").split(";")):
        function, colon, names = part.rpartition(":")
        kind = _FUNCTIONS.get(function, function) if colon else ""
        but = names.startswith("^")
        listed = [one for one in names.lstrip("^").split(",") if one]
        if unknown := [one for one in listed if one not in known]:
            raise InputError(f"{name}={text}: {unknown[0]} is none of {', '.join(known)}; correct the variable")
        found[kind] = tuple(one for one in known if (one in listed) != but)
    return tuple(sorted(found.items()))
