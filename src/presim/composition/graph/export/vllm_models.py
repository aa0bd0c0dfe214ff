"""vLLM's models on tensors without memory: the forward pass over prompts that its model runner executes.

``vllm:MODEL`` names a config whose architecture vLLM has, or such an architecture, with the sizes that transformers
gives its family. The layers are vLLM's own, for a Hopper GPU (`presim.composition.graph.export.vllm_layers`). Only the
last token of each prompt has logits.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from presim.composition.graph.export import vllm_layers
from presim.composition.graph.recording import RecordedCall
from presim.system.files import decode_foreign_json, read_bytes, write_file
from presim.system.files.scratch import temporary_folder

PREFIX = "vllm:"
_MEMORY = 80 << 30
_STYLES = {
    "ColumnParallelLinear": "colwise",
    "MergedColumnParallelLinear": "colwise",
    "QKVParallelLinear": "colwise",
    "RowParallelLinear": "rowwise",
}


class Prompts(torch.nn.Module):
    """A model of vLLM over prompts of equal length; returns the logits of their last tokens."""

    def __init__(self, model: torch.nn.Module, context: Any) -> None:
        super().__init__()
        self.model = model
        self._context = context
        self.tp_plan = {f"model.{name}": style for name, style in _styles(model).items()}

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """``input_ids``: [prompts, tokens]."""
        batch, sequence = input_ids.shape
        positions = torch.arange(sequence, device=input_ids.device).expand(batch, sequence).reshape(-1)
        with self._context(batch, sequence):
            hidden = self.model(input_ids.reshape(-1), positions)
            last = hidden.view(batch, sequence, -1)[:, -1].contiguous()
            logits: torch.Tensor = self.model.compute_logits(last)  # type: ignore[operator]
        return logits


def build(spec: str, dtype: torch.dtype) -> Prompts:
    """The model of ``vllm:CONFIG`` or ``vllm:ARCHITECTURE``.

    Raises:
        ValueError: vLLM is not installed, or does not have the architecture.
    """
    prepare()
    with temporary_folder("vllm") as folder:
        write_file(Path(folder, "config.json"), json.dumps(_config(spec.removeprefix(PREFIX))).encode())
        return _built(str(folder), dtype)


def prepare() -> None:
    """Import vLLM for a GPU that is not there.

    Raises:
        ValueError: it is not installed.
    """
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1"}
    try:
        import vllm.platforms
    except ModuleNotFoundError as error:
        raise ValueError(
            f"a model of vLLM's needs vLLM ({error.name} is missing): `make vllm`, or pip install vllm"
        ) from error
    vllm.platforms._current_platform = _platform()


def check(calls: Iterable[RecordedCall]) -> None:
    """Raise if a layer runs an operator of vLLM that presim cannot divide into kernels.

    Raises:
        ValueError: names the layer.
    """
    for call in calls:
        if call.operator.startswith("vllm::"):
            raise ValueError(f"{call.scope} runs {call.operator}, an operator of vLLM whose kernels are not known here")


def _platform() -> Any:
    """vLLM's CUDA platform without a CUDA driver."""
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Hopper(NonNvmlCudaPlatform):
        """A GPU of compute capability 9.0."""

        @classmethod
        def get_device_capability(  # type: ignore[override]
            cls, device_id: int = 0
        ) -> DeviceCapability:
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "NVIDIA H100 80GB HBM3"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return _MEMORY

        @classmethod
        def current_device(cls) -> torch.device:  # of buffers beside the model
            return torch.device("meta")

        @classmethod
        def log_warnings(cls) -> None:
            pass

    return Hopper()


def _config(name: str) -> dict[str, Any]:
    """A config file's fields, or those that transformers gives an architecture."""
    if Path(name).is_file():
        config: dict[str, Any] = decode_foreign_json(read_bytes(name, "name a config.json"))
        config.pop("presim_source", None)
        return config
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    family = next((family for family, architecture in NAMES.items() if architecture == name), None)
    if family is None:
        raise ValueError(
            f"transformers has no default sizes for {name}; give vllm: a config.json with this architecture"
        )
    return {**CONFIG_MAPPING[family]().to_dict(), "architectures": [name]}


def instantiated(folder: str, dtype: torch.dtype) -> tuple[torch.nn.Module, Any]:
    """vLLM's model of a folder's config on tensors without memory, and vLLM's configuration."""
    from vllm.config import CompilationConfig, ModelConfig, VllmConfig, set_current_vllm_config
    from vllm.config.compilation import CompilationMode
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.model_loader.utils import initialize_model

    model_config = ModelConfig(model=folder, skip_tokenizer_init=True, dtype=dtype, enforce_eager=True)
    compilation = CompilationConfig(mode=CompilationMode.NONE, custom_ops=["none"])
    config = VllmConfig(model_config=model_config, compilation_config=compilation)
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
            initialize_model_parallel(1, 1)
        torch.set_default_dtype(dtype)
        try:
            with torch.device("meta"):
                model = initialize_model(config)
        finally:
            torch.set_default_dtype(torch.float32)
    return model, config


def _built(folder: str, dtype: torch.dtype) -> Prompts:
    from vllm.config import set_current_vllm_config
    from vllm.forward_context import set_forward_context

    model, config = instantiated(folder, dtype)
    sizes = [1, 1]

    @contextlib.contextmanager
    def context(batch: int, sequence: int) -> Iterator[None]:
        sizes[:] = batch, sequence
        with set_current_vllm_config(config), set_forward_context(None, config, num_tokens=batch * sequence):
            yield

    vllm_layers.record(model, sizes)
    return Prompts(model, context)


def _styles(model: torch.nn.Module) -> dict[str, str]:
    """How tensor parallelism splits each linear layer, by vLLM's class."""
    style_by_pattern = {}
    for name, layer in model.named_modules():
        if style := _STYLES.get(type(layer).__name__):
            style_by_pattern[".".join("*" if part.isdecimal() else part for part in name.split("."))] = style
    return style_by_pattern
