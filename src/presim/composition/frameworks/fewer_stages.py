"""A run of Megatron-Bridge with a few stages of a pipeline, where these show what all do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from presim.composition.frameworks.megatron import FrameworkRun, fewest_repeating, training_overrides
from presim.composition.frameworks.megatron_recipes import PLAN_FIELDS
from presim.composition.graph.take import config_file
from presim.composition.launch_files.shapes import read_config
from presim.composition.plan import Plan

CAPTURED_STAGES = 4  # as `presim.composition.replan.replan_stages` and `replan_interleaved` need
_INTERLEAVED_GROUPS = (2, 3)  # of a micro-batch for each stage, in the first and the last step, as the latter needs
_COUNTED_ENDS = 2  # embedding and output layer, which count as layers where layers alone do not divide
_DIVISIONS = (
    "layout",
    "account_for",
    "num_layers_in",
    "mtp",
    "model.num_layers",
)  # parts of fields that give stages layers of their own
_KINDS = ("first_k_dense_replace", "num_nextn_predict_layers", "use_sliding_window")  # of a config with other layers


def run_of_few_stages(run: FrameworkRun, model: str, plan: Plan, world_size: int) -> FrameworkRun | None:
    """The run with four stages that are like those of its plan; None: all stages have to be captured.

    All stages have to hold the same number of layers of one kind, where the embedding and the output layer may count as
    layers. They run 1F1B, or the interleaved schedule if their number is even.
    """
    config = config_file(model)
    layers = None if config is None else _layers(read_config(config), plan, world_size, run.arguments)
    if layers is None:
        return None
    short_plan = msgspec.structs.replace(plan, pipeline=CAPTURED_STAGES)
    samples = plan.micro_batch * plan.data(world_size)
    is_interleaved = plan.virtual > 1
    first, captured = (CAPTURED_STAGES * groups if is_interleaved else 0 for groups in _INTERLEAVED_GROUPS)
    captured = captured or min(run.step_micro_batches, fewest_repeating(short_plan))
    replaced = {
        f"{PLAN_FIELDS['pipeline']}={plan.pipeline}",
        *training_overrides(plan, run.captured_micro_batches, samples),
    }
    source, *arguments = (argument for argument in run.arguments if argument not in replaced)
    added = (
        f"{PLAN_FIELDS['pipeline']}={CAPTURED_STAGES}",
        f"model.num_layers={layers}",
        *training_overrides(short_plan, captured, samples, first=first),
    )
    return dataclasses.replace(
        run,
        arguments=(source, *added, *arguments),
        captured_micro_batches=captured,
        captured_stages=CAPTURED_STAGES,
    )


def _layers(config: Mapping[str, Any], plan: Plan, world_size: int, arguments: Sequence[str]) -> int | None:
    """Layers of a model with four stages that are like those of a plan; None: no four stages are."""
    layers = equal_layers(config, arguments)
    micro_batches = plan.micro_batches(world_size)
    if layers is None or plan.pipeline <= CAPTURED_STAGES or micro_batches < plan.pipeline:
        return None
    if plan.virtual > 1 and (plan.pipeline % 2 or micro_batches < _INTERLEAVED_GROUPS[0] * plan.pipeline):
        return None
    chunks = plan.pipeline * plan.virtual
    further_layers = 0 if layers % chunks == 0 else _COUNTED_ENDS
    if (layers + further_layers) % chunks or (further_layers and layers < 2 * chunks - _COUNTED_ENDS):
        return None
    return (layers + further_layers) // plan.pipeline * CAPTURED_STAGES - further_layers


def equal_layers(config: Mapping[str, Any], arguments: Sequence[str]) -> int | None:
    """The number of layers, which are of one kind; None: they are not."""
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int):
        return None
    fields = (argument.partition("=")[0] for argument in arguments)
    if any(division in field for field in fields for division in _DIVISIONS):
        return None
    kinds = [value for value in config.values() if isinstance(value, list) and len(value) == layers]
    if any(len(set(map(str, kind))) > 1 for kind in kinds) or any(config.get(name) for name in _KINDS):
        return None
    return layers
