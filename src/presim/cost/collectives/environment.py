"""NCCL's environment variables, from the script's environment or a cluster file.

Names and meaning: NCCL documentation, "Environment Variables" (2.27). `READ` lists the variables that are modelled.
`ignored_variables` returns variables that change the speed of collectives and are not modelled.
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
    "NCCL_COLLNET_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_IB_DISABLE",
)
# They change the speed and are not modelled.
_UNREAD = frozenset((
    "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", "NCCL_IB_HCA", "NCCL_CROSS_NIC",
    "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_P2P_NVL_CHUNKSIZE",
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

    algorithms: tuple[tuple[str, tuple[str, ...]], ...] = (("", ALGORITHMS),)  # by kind of collective; "": all others
    protocols: tuple[tuple[str, tuple[str, ...]], ...] = (("", PROTOCOLS),)
    fewest_channels: int = 1
    most_channels: int = _MOST_CHANNELS
    peer_to_peer: bool = True  # NVLink and PCIe between GPUs; False: through host memory
    rdma: bool = True  # InfiniBand or RoCE between nodes; False: sockets
    in_network: bool = False  # reduction by the switches between nodes, where they can

    def allows(self, kind: str, algorithm: str, protocol: int) -> bool:
        """Whether NCCL may use this algorithm and protocol for a kind of collective."""
        if protocol not in self._protocols(kind):
            return False
        allowed = dict(self.algorithms).get(kind) or dict(self.algorithms).get("", ALGORITHMS)
        return algorithm in allowed

    def _protocols(self, kind: str) -> list[int]:
        allowed = dict(self.protocols).get(kind) or dict(self.protocols).get("", PROTOCOLS)
        return [index for index, name in enumerate(PROTOCOLS) if name in allowed] or [0, 1, 2]


def tuning_of(*environments: Mapping[str, str]) -> Tuning:
    """Tuning from environment variables. Later arguments take precedence over earlier ones.

    Raises:
        InputError: a variable has a value that NCCL rejects.
    """
    merged = {name: value for environment in environments for name, value in environment.items() if name in READ}
    return _parsed(tuple(sorted(merged.items())))


def ignored_variables(environment: Mapping[str, str]) -> list[str]:
    """Names of variables in ``environment`` that change the speed of collectives and are not modelled."""
    return sorted(name for name in environment if name in _UNREAD)


@functools.lru_cache(maxsize=64)
def _parsed(variables: tuple[tuple[str, str], ...]) -> Tuning:
    values = dict(variables)
    algorithms = _lists("NCCL_ALGO", values.get("NCCL_ALGO", ""), ALGORITHMS)
    disabled = [name for name in ("NVLS", "PAT") if _number(values, f"NCCL_{name}_ENABLE", 1) == 0]
    for name in disabled:
        algorithms_of_name = ("nvls", "nvlstree") if name == "NVLS" else ("pat",)
        algorithms = tuple(
            (kind, tuple(algorithm for algorithm in allowed if algorithm not in algorithms_of_name))
            for kind, allowed in algorithms
        )
    fewest_channels = max(_number(values, "NCCL_MIN_NCHANNELS", 1), _number(values, "NCCL_MIN_CTAS", 1))
    most_channels = min(
        _number(values, "NCCL_MAX_NCHANNELS", _MOST_CHANNELS), _number(values, "NCCL_MAX_CTAS", _MOST_CHANNELS)
    )
    if not most_channels >= 1 or fewest_channels > most_channels:
        raise InputError(
            f"NCCL's variables require at least {fewest_channels} and at most {most_channels} channels; "
            "correct NCCL_*_NCHANNELS"
        )
    return Tuning(
        algorithms=algorithms,
        protocols=_lists("NCCL_PROTO", values.get("NCCL_PROTO", ""), PROTOCOLS),
        fewest_channels=fewest_channels,
        most_channels=most_channels,
        peer_to_peer=_number(values, "NCCL_P2P_DISABLE", 0) == 0,
        rdma=_number(values, "NCCL_IB_DISABLE", 0) == 0,
        in_network=_number(values, "NCCL_COLLNET_ENABLE", 0) != 0,
    )


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(values.get(name, default))
    except ValueError:
        raise InputError(f"{name}={values[name]} is not a whole number; correct the variable") from None


def _lists(name: str, text: str, valid_names: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Parse ``ring,tree``, ``^nvls`` (all except), or per function ``allreduce:tree,ring;broadcast:ring``."""
    names_by_kind: dict[str, tuple[str, ...]] = {"": valid_names}
    for part in filter(None, text.lower().replace(" ", "").split(";")):
        function, colon, names = part.rpartition(":")
        kind = _FUNCTIONS.get(function, function) if colon else ""
        but = names.startswith("^")
        listed = [algorithm_name for algorithm_name in names.lstrip("^").split(",") if algorithm_name]
        if unknown := [algorithm_name for algorithm_name in listed if algorithm_name not in valid_names]:
            raise InputError(
                f"{name}={text}: {unknown[0]} is not one of {', '.join(valid_names)}; correct the variable"
            )
        names_by_kind[kind] = tuple(
            algorithm_name for algorithm_name in valid_names if (algorithm_name in listed) != but
        )
    return tuple(sorted(names_by_kind.items()))
