"""Reconciles the world's shape from a launch command with presim's own options."""

from __future__ import annotations

from presim.capture.launchers.launch import Launch, Shape
from presim.errors import InputError

_SAID_BY = {"nodes": "--nodes", "per_node": "--gpus-per-node", "world": "--world-size"}
_MEANS = {"nodes": "nodes", "per_node": "processes on each node", "world": "processes in all"}


def agreed(launch: Launch, asked: Shape, *, described: bool) -> Shape:
    """What the command says and what presim was asked for, together.

    presim's options fill in what the command leaves open; where neither says anything, the launcher's own default holds
    unless the cluster is ``described`` by a file.

    Raises:
        InputError: they contradict each other.
    """
    said = launch.said
    for name, option in _SAID_BY.items():
        here, there = getattr(said, name), getattr(asked, name)
        if here and there and here != there:
            raise InputError(
                f"the {launch.launcher} command means {here} {_MEANS[name]}, and {option} says {there}: "
                f"leave {option} out or correct one"
            )
    together = Shape(*(getattr(said, name) or getattr(asked, name) for name in _SAID_BY))
    _check(launch, said, asked, together)
    default = launch.otherwise
    if described or asked.world or (said.world and together.per_node):
        return together
    if said.world:
        return Shape(together.nodes or default.nodes, None, said.world)
    return Shape(together.nodes or default.nodes, together.per_node or default.per_node)


def _check(launch: Launch, said: Shape, asked: Shape, together: Shape) -> None:
    nodes, per_node, world = together.nodes, together.per_node, together.world
    if not launch.launcher or not (nodes and per_node and world) or nodes * per_node == world or said == Shape():
        return
    if asked == Shape():
        raise InputError(
            f"the {launch.launcher} command means {nodes} nodes x {per_node} processes, which are not {world}: "
            "correct it"
        )
    options = " ".join(f"{option} {getattr(asked, name)}" for name, option in _SAID_BY.items() if getattr(asked, name))
    raise InputError(
        f"{options} does not fit the {launch.launcher} command: {nodes} nodes x {per_node} processes are "
        f"{nodes * per_node}, not {world}; leave one out"
    )
