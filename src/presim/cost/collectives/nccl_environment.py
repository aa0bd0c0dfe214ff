"""NCCL's environment variables, from the script's environment or a cluster file.

Names and meaning: NCCL documentation, "Environment Variables" (2.27). `presim.cost.collectives.nccl_variables` lists
all of them. `ignored_variables` returns variables that change the speed of collectives and are not modelled.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from presim.cost.collectives.nccl_files import GraphFile, TopologyFile, absent_files, graph_file, topology_file
from presim.cost.collectives.nccl_variables import HONOURED, UNMODELLED
from presim.errors import InputError

ALGORITHMS = ("ring", "tree", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
_FUNCTIONS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
_MOST_CHANNELS = 64
_CHANNELS = ("NCHANNELS", "CTAS", "NRINGS")  # names of one limit, of which the strictest holds
_MOST_THREADS = 512  # of a channel
_BUFFER_BYTES, _MOST_BUFFER_BYTES = 4 << 20, 1 << 30
_MOST_SOCKETS = 64  # of a port: NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Algorithms, protocols and transports that NCCL may use."""

    algorithms: tuple[tuple[str, tuple[str, ...]], ...] = (("", ALGORITHMS),)  # by kind of collective; "": all others
    protocols: tuple[tuple[str, tuple[str, ...]], ...] = (("", PROTOCOLS),)
    fewest_channels: int = 1
    most_channels: int = _MOST_CHANNELS
    peer_to_peer: bool = True  # NVLink and PCIe between GPUs; False: through host memory
    pcie_peer_to_peer: bool = True  # PCIe between GPUs; False: NVLink only
    rdma: bool = True  # InfiniBand or RoCE between nodes; False: sockets
    sockets: int = 1  # connections of a port without RDMA
    in_network: bool = False  # reduction by the switches between nodes, where they can
    nvls_channels: int = 0  # 0: NCCL's default
    threads: int = 0  # of a channel with LL and Simple; 0: NCCL's default
    buffer_bytes: int = _BUFFER_BYTES  # of a channel with Simple
    graph: GraphFile | None = None  # rings instead of those of a search
    topology: TopologyFile | None = None  # links that the search sees instead of the node's

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
    merged = {name: value for environment in environments for name, value in environment.items() if name in HONOURED}
    return _parsed(tuple(sorted(merged.items())))


def ignored_variables(environment: Mapping[str, str]) -> list[str]:
    """Names of variables in ``environment`` that change the speed of collectives and are not modelled.

    A variable that names a file which is not on this machine counts among them.
    """
    return sorted([*(name for name in environment if name in UNMODELLED), *absent_files(environment)])


@functools.lru_cache(maxsize=64)
def _parsed(variables: tuple[tuple[str, str], ...]) -> Tuning:
    values = dict(variables)
    for end in ("MIN", "MAX"):
        if f"NCCL_{end}_NCHANNELS" in values:
            values.pop(f"NCCL_{end}_NRINGS", None)  # NCCL ignores the old name beside the newer one
    algorithms = _lists("NCCL_ALGO", values.get("NCCL_ALGO", ""), ALGORITHMS)
    disabled = [name for name in ("NVLS", "PAT") if _number(values, f"NCCL_{name}_ENABLE", 1) == 0]
    for name in disabled:
        algorithms_of_name = ("nvls", "nvlstree") if name == "NVLS" else ("pat",)
        algorithms = tuple(
            (kind, tuple(algorithm for algorithm in allowed if algorithm not in algorithms_of_name))
            for kind, allowed in algorithms
        )
    fewest_channels = max(_number(values, f"NCCL_MIN_{name}", 1) for name in _CHANNELS)
    most_channels = min(_number(values, f"NCCL_MAX_{name}", _MOST_CHANNELS) for name in _CHANNELS)
    if not most_channels >= 1 or fewest_channels > most_channels:
        raise InputError(
            f"NCCL's variables require at least {fewest_channels} and at most {most_channels} channels; "
            "correct NCCL_*_NCHANNELS"
        )
    sockets = _number(values, "NCCL_SOCKET_NTHREADS", 1) * _number(values, "NCCL_NSOCKS_PERTHREAD", 1)
    over_sockets = _number(values, "NCCL_IB_DISABLE", 0) != 0 or values.get("NCCL_NET", "").lower() == "socket"
    level = values.get("NCCL_P2P_LEVEL", "").upper()
    peer_to_peer = _number(values, "NCCL_P2P_DISABLE", 0) == 0 and level not in ("LOC", "0")
    return Tuning(
        algorithms=algorithms,
        protocols=_lists("NCCL_PROTO", values.get("NCCL_PROTO", ""), PROTOCOLS),
        fewest_channels=fewest_channels,
        most_channels=most_channels,
        peer_to_peer=peer_to_peer,
        pcie_peer_to_peer=peer_to_peer and level != "NVL",
        rdma=not over_sockets,
        sockets=min(max(sockets, 1), _MOST_SOCKETS),
        in_network=_number(values, "NCCL_COLLNET_ENABLE", 0) != 0,
        nvls_channels=_in_range(values, "NCCL_NVLS_NCHANNELS", 0, _MOST_CHANNELS),
        threads=_in_range(values, "NCCL_NTHREADS", 0, _MOST_THREADS),
        buffer_bytes=_in_range(values, "NCCL_BUFFSIZE", _BUFFER_BYTES, _MOST_BUFFER_BYTES),
        graph=graph_file(values),
        topology=topology_file(values),
    )


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(values.get(name, default))
    except ValueError:
        raise InputError(f"{name}={values[name]} is not a whole number; correct the variable") from None


def _in_range(values: Mapping[str, str], name: str, default: int, limit: int) -> int:
    """A positive variable, at most ``limit``; the default if it is not set or not positive, as in NCCL."""
    number = _number(values, name, default)
    return min(number, limit) if number > 0 else default


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
    if empty_kinds := [kind for kind, names in names_by_kind.items() if not names]:
        call = f" for {empty_kinds[0]}" if empty_kinds[0] else ""
        raise InputError(f"{name}={text} leaves none of {', '.join(valid_names)}{call}; correct the variable")
    return tuple(sorted(names_by_kind.items()))
