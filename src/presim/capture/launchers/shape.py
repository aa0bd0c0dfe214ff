"""Merge the world's shape from a launch command with presim's own options."""

from __future__ import annotations

from presim.capture.launchers.launch import Launch, Shape
from presim.errors import InputError

_OPTIONS = {"nodes": "--nodes", "per_node": "--gpus-per-node", "world": "--world-size"}
_UNITS = {"nodes": "nodes", "per_node": "processes on each node", "world": "processes in all"}


def merge_shapes(launch: Launch, requested: Shape, *, described: bool) -> Shape:
    """Merge the command's shape with the one from presim's options.

    presim's options fill in what the command does not specify. If neither specifies a number, the launcher's default
    applies, unless the cluster is ``described`` by a file.

    Raises:
        InputError: they contradict each other.
    """
    shape = launch.shape
    for name, option in _OPTIONS.items():
        command_count, option_count = getattr(shape, name), getattr(requested, name)
        if command_count and option_count and command_count != option_count:
            raise InputError(
                f"the {launch.launcher} command specifies {command_count} {_UNITS[name]}, "
                f"but {option} is {option_count}: leave {option} out or correct one"
            )
    merged = Shape(*(getattr(shape, name) or getattr(requested, name) for name in _OPTIONS))
    _check(launch, shape, requested, merged)
    default = launch.default_shape
    if described or requested.world or (shape.world and merged.per_node):
        return merged
    if shape.world:
        return Shape(merged.nodes or default.nodes, None, shape.world)
    return Shape(merged.nodes or default.nodes, merged.per_node or default.per_node)


def _check(launch: Launch, shape: Shape, requested: Shape, merged: Shape) -> None:
    nodes, per_node, world = merged.nodes, merged.per_node, merged.world
    if not launch.launcher or not (nodes and per_node and world) or nodes * per_node == world or shape == Shape():
        return
    if requested == Shape():
        raise InputError(
            f"the {launch.launcher} command specifies {nodes} nodes x {per_node} processes, which are not {world}: "
            "correct it"
        )
    options = " ".join(
        f"{option} {getattr(requested, name)}" for name, option in _OPTIONS.items() if getattr(requested, name)
    )
    raise InputError(
        f"{options} does not fit the {launch.launcher} command: {nodes} nodes x {per_node} processes are "
        f"{nodes * per_node}, not {world}; leave one out"
    )
