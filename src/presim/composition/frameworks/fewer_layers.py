"""Runs of Megatron-Bridge with a few layers, where these show what all do."""

from __future__ import annotations

import dataclasses

from presim.composition.frameworks.fewer_stages import equal_layers
from presim.composition.frameworks.megatron import FrameworkRun
from presim.composition.graph.take import config_file
from presim.composition.launch_files.shapes import read_config
from presim.composition.plan import Plan

# Two sizes: the second confirms what the first says (`presim.composition.replan.replan_layers`).
CAPTURED_LAYERS = (5, 7)
# Layers: starting Megatron takes as long as 50 of them, and where no law holds all are captured after all, as where
# buckets of gradients end every one and a half layers (Llama 3 70B with tensor parallelism of 8).
_FEWEST = 96


def runs_of_few_layers(run: FrameworkRun, model: str, plan: Plan) -> tuple[FrameworkRun, ...]:
    """The runs with 5 and with 7 layers that are like those of the model; none: all have to be captured.

    All layers have to be of one kind, on one stage. A recipe's CUDA graphs are of each layer.
    """
    config = config_file(model)
    layers = None if config is None else equal_layers(read_config(config), run.arguments)
    if layers is None or layers < _FEWEST or plan.pipeline > 1 or run.steps > 2:
        return ()
    source, *arguments = run.arguments
    return tuple(
        dataclasses.replace(
            run,
            arguments=(source, f"model.num_layers={number}", *arguments),
            captured_layers=number,
            model_layers=layers,
        )
        for number in CAPTURED_LAYERS
    )
