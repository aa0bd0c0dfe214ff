"""The ``deepspeed`` launcher: its options and variables (deepspeed/launcher, runner.py and launch.py, 0.19)."""

from __future__ import annotations

from collections.abc import Sequence

from presim.capture.launchers.host_lists import read_deepspeed_hosts
from presim.capture.launchers.launch import Launch, Shape, Worker, store_address
from presim.capture.launchers.launcher_options import Grammar, Options, names, parse
from presim.capture.launchers.python import read_program
from presim.errors import InputError

GRAMMAR = Grammar(
    "deepspeed",
    names(
        "module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid bind-cores-to-rank quiet "
        "elastic-training",
        q="quiet",
    ),
    names(
        "hostfile include exclude num-nodes num-gpus master-port master-addr node-rank launcher launcher-args "
        "enable-each-rank-log autotuning bind-core-list venv-script log-level min-elastic-nodes max-elastic-nodes "
        "ssh-port",
        H="hostfile",
        i="include",
        e="exclude",
        num_accelerators="num-gpus",
        p="ssh-port",
    ),
    is_complete=True,
)


def deepspeed_variables(worker: Worker) -> dict[str, str]:
    """The variables of one process."""
    return {
        **store_address(worker),
        "RANK": str(worker.rank),
        "LOCAL_RANK": str(worker.local),
        "WORLD_SIZE": str(worker.world_size),
        "LOCAL_SIZE": str(worker.local_world),
        "CROSS_RANK": str(worker.node),
        "CROSS_SIZE": str(worker.nodes),
    }


def read_deepspeed(words: Sequence[str]) -> Launch:
    """Parse the options and program after ``deepspeed``.

    Raises:
        InputError: an option's value is invalid, or the nodes differ in their number of GPUs.
    """
    options = parse(GRAMMAR, words)
    if options.has("autotuning"):
        raise InputError("deepspeed --autotuning starts many jobs; give presim the command of one of them")
    launch = Launch(
        options.program[0],
        tuple(options.program[1:]),
        options.has("module"),
        launcher="deepspeed",
        shape=_shape(options),
        default_shape=Shape(nodes=1),
        schemes=(deepspeed_variables,),
        local_rank="" if options.has("no-local-rank") else "--local_rank",
        notes=(*options.notes(), *_notes(options)),
    )
    return read_program(options.program, launch) if options.has("no-python") else launch


def _shape(options: Options) -> Shape:
    hosts = read_deepspeed_hosts(options.text("hostfile")) if options.has("hostfile") else {}
    hosts = _filter_hosts(hosts, options)
    if not hosts:
        return Shape(options.count("num-nodes"), options.count("num-gpus"))
    nodes = min(options.count("num-nodes") or len(hosts), len(hosts))
    slots = set(list(hosts.values())[:nodes])
    per_node = options.count("num-gpus") or (slots.pop() if len(slots) == 1 else None)
    if per_node is None:
        raise InputError(
            f"deepspeed: nodes with {sorted(slots)} GPUs in one job, but presim needs equal nodes; use --num_gpus"
        )
    return Shape(nodes, per_node or None)


def _notes(options: Options) -> list[str]:
    if not options.has("exclude") or options.has("hostfile"):
        return []
    return [
        f"deepspeed's --exclude {options.text('exclude')} was ignored, because it does not give the number of GPUs."
    ]


def _filter_hosts(hosts: dict[str, int], options: Options) -> dict[str, int]:
    """Apply ``--include`` and ``--exclude`` (``host1@host2:0,1``)."""
    for part in (*options.text("include").split("@"), *options.text("exclude").split("@")):
        slots = part.partition(":")[2]
        if not all(slot.strip().isdecimal() for slot in slots.split(",") if slots):
            raise InputError(f"deepspeed: {part!r} must name GPUs by numbers, as in host:0,1,2; correct it")
    slots_by_host = dict(hosts)
    if options.has("include"):
        slots_by_host = {}
        for part in options.text("include").split("@"):
            host, _, slots = part.strip().partition(":")
            count = len(slots.split(",")) if slots else hosts.get(host)
            slots_by_host[host] = count or 0
    for part in filter(None, options.text("exclude").split("@")):
        host, _, slots = part.strip().partition(":")
        if host in slots_by_host:
            slots_by_host[host] -= len(slots.split(",")) if slots else slots_by_host[host]
    return {
        host: count for host, count in slots_by_host.items() if count or (options.has("include") and host not in hosts)
    }
