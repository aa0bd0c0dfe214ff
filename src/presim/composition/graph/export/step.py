"""Records one training step of a model."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from presim.composition.graph.export.module_paths import Scopes
from presim.composition.graph.export.on_device import AsOnDevice
from presim.composition.graph.export.operands import dtype_name
from presim.composition.graph.export.recorder import Recorder
from presim.composition.graph.export.tensor_plans import tensor_plan
from presim.composition.graph.recording import Named, Recording, Repeats


def record(
    model: torch.nn.Module, batch: int, sequence: int, repeats: Iterable[Repeats] = (), spec: str = ""
) -> Recording:
    """One step of training of a model on the meta device; of a model in evaluation mode the forward pass."""
    scopes = Scopes(model)
    recorder = Recorder(scopes)
    gradients: dict[int, str] = {}
    parameters = list(model.named_parameters())
    handles: list[Any] = []
    for name, tensor in parameters:
        recorder.register(tensor, "parameter", name)
        if model.training:
            handles.append(tensor.register_post_accumulate_grad_hook(_noting(recorder, gradients, name)))
    for name, buffer in model.named_buffers():
        recorder.register(buffer, "buffer", name)
    inputs = _inputs(model, batch, sequence)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            recorder.register(value, "input", name)
    handles += scopes.install()
    try:
        with torch.device("meta"), AsOnDevice(), recorder, torch.set_grad_enabled(model.training):
            output = model(**inputs)
            if model.training:
                loss = _loss(output)
                recorder.backward_runs = True
                with torch._C.DisableTorchFunction():
                    loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    return Recording(
        spec,
        type(model).__name__,
        batch,
        sequence,
        tuple(recorder.storages),
        tuple(recorder.calls),
        gradients,
        tuple(Named(name, tuple(tensor.shape), dtype_name(tensor)) for name, tensor in parameters),
        tuple(repeats),
        tensor_plan(model),
        _versions(),
    )


def _noting(recorder: Recorder, gradients: dict[int, str], name: str) -> Callable[[torch.Tensor], None]:
    def note(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            gradients[recorder.index_of(parameter.grad)] = name

    return note


def _inputs(model: torch.nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Inputs of the model: token ids, labels, images, from its signature and config."""
    accepted = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    images: Any = getattr(config, "vision_config", None) or config
    model_inputs: dict[str, Any] = {}
    if "pixel_values" in accepted and hasattr(images, "image_size"):
        sides = (images.image_size,) * 2 if isinstance(images.image_size, int) else images.image_size
        dtype = next(model.parameters()).dtype
        model_inputs["pixel_values"] = torch.empty((batch, images.num_channels, *sides), dtype=dtype, device="meta")
    if "input_ids" in accepted or not model_inputs:
        positions = getattr(getattr(config, "text_config", None), "max_position_embeddings", sequence)
        tokens = torch.empty((batch, min(sequence, positions)), dtype=torch.int64, device="meta")
        model_inputs["input_ids" if "input_ids" in accepted else next(iter(accepted))] = tokens
    if "labels" in accepted:
        shape = model_inputs["input_ids"].shape if "input_ids" in model_inputs else (batch,)
        model_inputs["labels"] = torch.empty(shape, dtype=torch.int64, device="meta")
    if "return_loss" in accepted:
        model_inputs["return_loss"] = True
    return model_inputs


def _loss(output: Any) -> torch.Tensor:
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    tensor = next(leaf for leaf in tree_leaves(getattr(output, "logits", output)) if isinstance(leaf, torch.Tensor))
    return tensor if tensor.dim() == 0 else tensor.float().sum()


def _versions() -> dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    for name in ("transformers", "vllm"):
        if name in sys.modules:
            versions[name] = sys.modules[name].__version__
    return versions
