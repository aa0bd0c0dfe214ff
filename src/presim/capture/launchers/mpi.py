"""``mpirun`` and ``mpiexec`` of Open MPI and Hydra (MPICH, Intel MPI, MVAPICH): options and variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from presim.capture.launchers.host_lists import read_host_option, read_mpi_hosts
from presim.capture.launchers.launch import Launch, Shape, Worker, store_address
from presim.capture.launchers.launcher_options import Grammar, Options, cyclic_note, names, parse, whole_number
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
        notes=(*options.notes(), *_placement_notes(options)),
    )
    return launch, options.program


def _shape(options: Options) -> Shape:
    world = options.count("np")
    per_node = options.count("npernode") or options.count("N") or options.count("ppn") or _ppr(options.text("map-by"))
    if options.has("pernode"):
        per_node = 1
    hosts = _hosts(options)
    if hosts and per_node is None:
        per_node = _slots_of_a_host(hosts, world, has_counts=options.has("hostfile") or ":" in options.text("host"))
    if hosts and per_node and world is None:
        return Shape(len(hosts), per_node)
    return Shape(None, per_node, world)


def _placement_notes(options: Options) -> list[str]:
    for name in ("map-by", "rank-by"):
        if re.split("[:,]", options.text(name).lower())[0] == "node":
            return [cyclic_note("mpirun", f"--{name} node")]
    return [cyclic_note("mpirun", "--bynode")] if options.has("bynode") else []


def _slots_of_a_host(hosts: Mapping[str, int], world: int | None, *, has_counts: bool) -> int | None:
    """Ranks that fill a host; None: the list does not give slots.

    Raises:
        InputError: hosts differ, or have too few slots for all ranks.
    """
    counts = sorted(set(hosts.values()))
    if len(counts) > 1:
        raise InputError(
            f"mpirun: hosts with {', '.join(map(str, counts[:8]))} slots in one job, but presim needs equal nodes; "
            "give them the same number"
        )
    total = counts[0] * len(hosts)
    if world is None or not total or world <= total:
        return counts[0] or None
    if not has_counts and world % len(hosts) == 0:
        return world // len(hosts)
    raise InputError(f"mpirun: {world} processes do not fit {len(hosts)} hosts with {total} slots; correct one of them")


def _ppr(text: str) -> int | None:
    """Ranks per node in ``ppr:8:node``.

    Raises:
        InputError: they are per socket or another part of a node, of which presim does not know the number.
    """
    match = re.match(r"ppr:(\d+):(\w+)", text, re.IGNORECASE)
    if match and match.group(2).lower() != "node":
        raise InputError(
            f"mpirun: --map-by {text[:80]} does not say how many ranks a node has; give presim `--map-by ppr:N:node`"
        )
    return whole_number(match.group(1)) if match else None


def _hosts(options: Options) -> dict[str, int]:
    """Hosts of ``-H host1:8,host2:8`` or a host file, with their slots."""
    return (
        read_mpi_hosts(options.text("hostfile")) if options.has("hostfile") else read_host_option(options.text("host"))
    )


def _variables(options: Options) -> dict[str, str]:
    """``-x NAME=value`` and ``-genv NAME value``; ``-x NAME`` passes on an existing variable."""
    variables: dict[str, str] = {}
    for name in ("x", "genv", "env"):
        for text in options.values.get(name, []):
            key, equals, value = text.partition("=")
            if equals or key in os.environ:
                variables[key] = value if equals else os.environ[key]
    return variables
