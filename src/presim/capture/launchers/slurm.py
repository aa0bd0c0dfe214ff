"""``srun``: options of Slurm's srun(1), and the variables that it sets for each task."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from presim.capture.launchers.launch import Launch, Shape, Worker, store_address
from presim.capture.launchers.launcher_options import Grammar, Options, cyclic_note, names, parse, whole_number
from presim.errors import InputError

GRAMMAR = Grammar(
    "srun",
    names(
        "label unbuffered exclusive overlap overcommit quiet verbose no-kill exact contiguous preserve-env pty hold "
        "spread-job use-min-nodes disable-status multi-prog wait-all-nodes",
        l="label",
        u="unbuffered",
        O="overcommit",
        Q="quiet",
        v="verbose",
        k="no-kill",
        s="overcommit",
        K="no-kill",
    ),
    names(
        "nodes ntasks ntasks-per-node gpus gpus-per-node gpus-per-task gres cpus-per-task partition account time "
        "job-name nodelist exclude output error chdir export mpi cpu-bind gpu-bind mem mem-per-cpu mem-per-gpu "
        "mem-bind container-image container-mounts container-workdir container-name container-env container-save "
        "constraint qos reservation jobid kill-on-bad-exit distribution input signal wait tasks-per-node network "
        "accel-bind accelerators comment dependency licenses ntasks-per-gpu ntasks-per-socket ntasks-per-core "
        "threads-per-core prolog epilog task-prolog task-epilog het-group pack-group open-mode propagate",
        N="nodes",
        n="ntasks",
        G="gpus",
        c="cpus-per-task",
        p="partition",
        A="account",
        t="time",
        J="job-name",
        w="nodelist",
        x="exclude",
        o="output",
        e="error",
        D="chdir",
        C="constraint",
        q="qos",
        m="distribution",
        i="input",
        W="wait",
    ),
)


def slurm_variables(worker: Worker) -> dict[str, str]:
    """The variables of one task, and the store's address as a batch script would export it."""
    tasks_per_node = str(worker.local_world)
    return {
        **store_address(worker),
        "SLURM_PROCID": str(worker.rank),
        "SLURM_LOCALID": str(worker.local),
        "SLURM_NODEID": str(worker.node),
        "SLURM_NTASKS": str(worker.world_size),
        "SLURM_NPROCS": str(worker.world_size),
        "SLURM_NNODES": str(worker.nodes),
        "SLURM_JOB_NUM_NODES": str(worker.nodes),
        "SLURM_STEP_NUM_TASKS": str(worker.world_size),
        "SLURM_STEP_NUM_NODES": str(worker.nodes),
        "SLURM_NTASKS_PER_NODE": tasks_per_node,
        "SLURM_TASKS_PER_NODE": f"{tasks_per_node}(x{worker.nodes})" if worker.nodes > 1 else tasks_per_node,
        "SLURM_STEP_TASKS_PER_NODE": f"{tasks_per_node}(x{worker.nodes})" if worker.nodes > 1 else tasks_per_node,
        "SLURM_JOB_ID": os.environ.get("SLURM_JOB_ID", "1"),
        "SLURM_JOBID": os.environ.get("SLURM_JOB_ID", "1"),
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_NODELIST": _nodelist(worker.nodes),
        "SLURM_NODELIST": _nodelist(worker.nodes),
        "SLURM_STEP_NODELIST": _nodelist(worker.nodes),
        "SLURMD_NODENAME": f"node{worker.node}",
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    }


def _nodelist(nodes: int) -> str:
    return f"node[0-{nodes - 1}]" if nodes > 1 else "node0"


def read_srun(words: Sequence[str]) -> tuple[Launch, list[str]]:
    """Parse the options after ``srun``; returns them with the program that each task runs.

    Raises:
        InputError: an option's value is invalid.
    """
    options = parse(GRAMMAR, words)
    if options.has("multi-prog"):
        raise InputError("srun --multi-prog starts different programs; give presim the command of one of them")
    shape = _shape(options)
    launch = Launch(
        "",
        launcher="srun",
        shape=shape,
        default_shape=Shape(1, 1) if shape == Shape() else Shape(),
        variables=_exported_variables(options.text("export")),
        schemes=(slurm_variables,),
        notes=(*options.notes(), *_placement_notes(options)),
    )
    return launch, options.program


def _placement_notes(options: Options) -> list[str]:
    distribution = options.text("distribution", os.environ.get("SLURM_DISTRIBUTION", ""))
    is_cyclic = distribution.lower().split(":")[0].split(",")[0] in ("cyclic", "arbitrary")
    return [cyclic_note("srun", f"--distribution {distribution}")] if is_cyclic else []


def _exported_variables(text: str) -> dict[str, str]:
    """Variables of ``--export=ALL,NAME=value``; existing variables are passed on in any case."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name: value for name, equals, value in pairs if equals}


def _shape(options: Options) -> Shape:
    """Tasks are ranks; without a number of tasks there is one per node. The batch script's variables are defaults."""
    nodes = _max_nodes(options.text("nodes", os.environ.get("SLURM_NNODES", "")))
    world = options.count("ntasks") or _number(os.environ.get("SLURM_NTASKS", ""))
    per_node = options.count("ntasks-per-node") or options.count("tasks-per-node")
    per_node = per_node or _number(os.environ.get("SLURM_NTASKS_PER_NODE", ""))
    if world and nodes and not per_node and world % nodes == 0:
        per_node = world // nodes
    if world and not nodes and not per_node:
        per_node = _gpus_per_node(options)
    if not world and nodes and not per_node:
        per_node = 1
    return Shape(nodes, per_node, world)


def _gpus_per_node(options: Options) -> int | None:
    """``--gpus-per-node 8``, ``h100:8`` or ``--gres gpu:h100:8``, assuming one task per GPU."""
    for name in ("gpus-per-node", "gres"):
        match = re.search(r"(\d+)$", options.text(name).split(",")[0])
        if match:
            return whole_number(match.group(1))
    return None


def _max_nodes(text: str) -> int | None:
    """The maximum in ``16`` or ``8-16``."""
    return _number(text.split("-")[-1])


def _number(text: str) -> int | None:
    return whole_number(text) or None
