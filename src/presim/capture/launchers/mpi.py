"""``mpirun`` and ``mpiexec`` of Open MPI and Hydra (MPICH, Intel MPI, MVAPICH): options and variables."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from presim.capture.launchers.deepspeed_launcher import read_hostfile
from presim.capture.launchers.launch import Launch, Shape, Worker, store_address
from presim.capture.launchers.launcher_options import Grammar, Options, names, parse
from presim.errors import InputError

GRAMMAR = Grammar(
    "mpirun",
    names(
        "allow-run-as-root oversubscribe nooversubscribe display-map display-allocation report-bindings tag-output "
        "timestamp-output bynode byslot verbose quiet use-hwthread-cpus do-not-launch genvall genvnone envall envnone "
        "prepend-rank pernode nolocal merge-stderr-to-stdout",
        v="verbose",
        q="quiet",
        l="prepend-rank",
    ),
    names(
        "np npernode N host hostfile x bind-to map-by rank-by wdir path prefix output-filename report-uri timeout tune "
        "stdin ppn genvlist envlist launcher bootstrap iface rmk personality am display output runtime-options",
        n="np",
        c="np",
        H="host",
        hosts="host",
        machinefile="hostfile",
        f="hostfile",
        wd="wdir",
        perhost="ppn",
        bind_to_core="bind-to",
    ),
    names("mca gmca pmca prtemca env genv"),
)
_HYDRA = {"ppn", "genv", "env", "genvall", "genvnone", "genvlist", "envlist", "launcher", "bootstrap", "iface", "rmk"}


def open_mpi_variables(worker: Worker) -> dict[str, str]:
    """Open MPI's variables, and the store's address as with ``-x MASTER_ADDR``."""
    return {
        **store_address(worker),
        "OMPI_COMM_WORLD_RANK": str(worker.rank),
        "OMPI_COMM_WORLD_SIZE": str(worker.world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(worker.local),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(worker.local_world),
        "OMPI_COMM_WORLD_NODE_RANK": str(worker.local),
        "OMPI_UNIVERSE_SIZE": str(worker.world_size),
    }


def hydra_variables(worker: Worker) -> dict[str, str]:
    """The variables of Hydra and MVAPICH."""
    return {
        **store_address(worker),
        "PMI_RANK": str(worker.rank),
        "PMI_SIZE": str(worker.world_size),
        "MPI_LOCALRANKID": str(worker.local),
        "MPI_LOCALNRANKS": str(worker.local_world),
        "MV2_COMM_WORLD_RANK": str(worker.rank),
        "MV2_COMM_WORLD_SIZE": str(worker.world_size),
        "MV2_COMM_WORLD_LOCAL_RANK": str(worker.local),
        "MV2_COMM_WORLD_LOCAL_SIZE": str(worker.local_world),
    }


def read_mpirun(words: Sequence[str]) -> tuple[Launch, list[str]]:
    """Parse the options after ``mpirun``; returns them with the program that each process runs.

    Raises:
        InputError: an option's value is invalid, or several programs are started.
    """
    options = parse(GRAMMAR, words)
    if ":" in options.program:
        raise InputError("mpirun starts several programs (a lone `:`); give presim the command of one of them")
    hydra = not _HYDRA.isdisjoint(options.values)
    shape = _shape(options)
    launch = Launch(
        "",
        launcher="mpirun",
        shape=shape,
        default_shape=Shape(1, 1) if shape == Shape() else Shape(),
        variables=_variables(options),
        schemes=(hydra_variables if hydra else open_mpi_variables,),
        notes=options.notes(),
    )
    return launch, options.program


def _shape(options: Options) -> Shape:
    world = options.count("np")
    per_node = options.count("npernode") or options.count("N") or options.count("ppn") or _ppr(options.text("map-by"))
    if options.has("pernode"):
        per_node = 1
    hosts = _hosts(options)
    slots = set(hosts.values())
    if hosts and per_node is None and len(slots) == 1:
        per_node = slots.pop() or None
    if hosts and per_node and world is None:
        return Shape(len(hosts), per_node)
    return Shape(None, per_node, world)


def _ppr(text: str) -> int | None:
    """Ranks per node in ``ppr:8:node``."""
    match = re.match(r"ppr:(\d+):node", text)
    return int(match.group(1)) if match else None


def _hosts(options: Options) -> dict[str, int]:
    """Hosts of ``-H host1:8,host2:8`` or a host file, with their slots."""
    if options.has("hostfile"):
        return read_hostfile(options.text("hostfile"), "mpirun")
    hosts = [part.partition(":") for part in options.text("host").split(",") if part]
    return {host: int(slots) if slots.isdecimal() else 0 for host, _, slots in hosts}


def _variables(options: Options) -> dict[str, str]:
    """``-x NAME=value`` and ``-genv NAME value``; ``-x NAME`` passes on an existing variable."""
    variables: dict[str, str] = {}
    for name in ("x", "genv", "env"):
        for text in options.values.get(name, []):
            key, equals, value = text.partition("=")
            if equals or key in os.environ:
                variables[key] = value if equals else os.environ[key]
    return variables
