"""Facts for the constraints of space files: sizes of the cluster and of the model."""

from __future__ import annotations

from collections.abc import Sequence

from presim.errors import InputError
from presim.evaluation.options import ClusterOptions
from presim.planner.trials.trial import Value


def launch_shape(command: Sequence[str], options: ClusterOptions) -> dict[str, Value]:
    """World size, nodes and GPUs per node, where the launch command or the options give them."""
    from presim.capture.launchers.launch_command import read_command

    try:
        fixed = read_command(command).shape
        nodes, per_node, world = fixed.nodes, fixed.per_node, fixed.world
    except InputError:
        nodes = per_node = world = None
    nodes, per_node = options.nodes or nodes, options.gpus_per_node or per_node
    world = options.world_size or world or (nodes * per_node if nodes and per_node else None)
    per_node = per_node or (world // nodes if world and nodes else None)
    shape = {"world_size": world, "nodes": nodes, "gpus_per_node": per_node}
    return {name: value for name, value in shape.items() if value}


def facts_of(model: str) -> dict[str, Value]:
    """Model sizes for the constraints of spaces, read from the model's config.json.

    Raises:
        InputError: there is no config.json, or presim cannot read the sizes of this model family.
    """
    from presim.composition.graph.take import config_file
    from presim.composition.launch_files.shapes import read_config, shapes

    config = config_file(model)
    if config is None:
        raise InputError(f"{model} has no config.json; give its sizes instead, e.g. layers=32 heads=32 kv_heads=8")
    sizes = shapes(read_config(config))
    return {
        "layers": sizes.layers,
        "heads": sizes.heads,
        "kv_heads": sizes.kv_heads,
        "hidden": sizes.hidden,
        "vocabulary": sizes.vocabulary,
        "experts": sizes.experts,
    }
