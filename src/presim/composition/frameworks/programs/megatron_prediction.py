"""What Megatron-Bridge 0.2 lacks for layers that predict further tokens (MTP) on a stage without other layers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import megatron.bridge.training.gpt_step as gpt_step
import megatron.bridge.training.utils.train_utils as train_utils
import torch
from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.moe.moe_utils import get_moe_layer_wise_logging_tracker


def install(model: GPTModelProvider) -> None:
    """Let stages that predict read tokens, and count predicting layers on stages without experts."""
    if getattr(model, "mtp_num_layers", None):
        gpt_step.is_pp_first_stage = _reading_stages(model)
        train_utils.track_moe_metrics = _counting_all(train_utils.track_moe_metrics)


def _reading_stages(model: GPTModelProvider) -> Any:
    """Whether a stage reads tokens: the first one does, and Bridge asks for no other that is not the last."""
    is_first = gpt_step.is_pp_first_stage

    def reads_tokens(group: torch.distributed.ProcessGroup) -> bool:
        stages = getattr(model.pipeline_model_parallel_layout, "layout", None)  # a list or a text until it is checked
        return is_first(group) or (stages is not None and any(LayerType.mtp in chunk for chunk in stages[group.rank()]))

    return reads_tokens


def _counting_all(track: Any) -> Any:
    """Losses of routers have an entry for each layer, predicting ones too; those of stages without experts lack it."""

    @functools.wraps(track)
    def tracked(
        *arguments: Any, track_names: Sequence[str], num_layers: int, mtp_num_layers: int | None, **settings: Any
    ) -> None:
        entries = num_layers + (mtp_num_layers or 0)
        for name in track_names:
            empty = {"values": torch.zeros(entries, device="cuda"), "reduce_group_has_dp": False}
            get_moe_layer_wise_logging_tracker().setdefault(name, {**empty, "reduce_group": None, "avg_group": None})
        track(*arguments, track_names=track_names, num_layers=num_layers, mtp_num_layers=mtp_num_layers, **settings)

    return tracked
