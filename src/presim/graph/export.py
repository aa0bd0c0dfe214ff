"""Export a model's training step from PyTorch: run it once, forward and backward, on meta tensors.

Nothing is computed and no memory is allocated. A dispatch mode below autograd, as in PyTorch's own exporters, records
each operator that eager PyTorch would run, in order. Small integer tensors (positions, masks) are computed, because
models read them. This module runs in a separate process: ``python -m presim.graph.export REQUEST OUT``.
"""

from __future__ import annotations

import bisect
import itertools
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from presim.graph import compiled
from presim.graph.libraries import delta_rule, kernels, mamba, selective_scan
from presim.graph.recording import Call, Named, Recording, Repeats, Storage, Tensor

_COMPUTED_BYTES = 1 << 28  # integer tensors up to this size are computed for real
_INTEGERS = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
FUNCTIONS: dict[str, Callable[..., Any]] = {  # of libraries, by the names under which transformers looks for them
    "causal_conv1d_fn": mamba.causal_conv1d_fn,
    "mamba_chunk_scan_combined": mamba.mamba_chunk_scan_combined,
    "mamba_split_conv1d_scan_combined": mamba.mamba_split_conv1d_scan_combined,
    "mamba_inner_fn": selective_scan.mamba_inner_fn,
    "selective_scan_fn": selective_scan.selective_scan_fn,
    "chunk_gated_delta_rule": delta_rule.chunk_gated_delta_rule,
}
_METADATA = ("aten::detach", "aten::lift_fresh", "aten::alias")


class Scopes:
    """Tracks the module of each operator: the called module in forward, the forward operator's module in backward."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._stack = [""]
        self._since, self._scope = [0], [""]  # sequence numbers of autograd, and the scope from there on

    def install(self) -> list[Any]:
        """Observe the calls of all modules; returns what takes the observers away again."""
        register = torch.nn.modules.module
        return [
            register.register_module_forward_pre_hook(lambda module, inputs: self._enter(module)),
            register.register_module_forward_hook(lambda module, inputs, output: self._leave(), always_call=True),
        ]

    def current(self) -> tuple[str, bool, bool]:
        """(scope of the current operator, whether it runs in the backward pass, whether autograd itself issued it)."""
        node = torch._C._current_autograd_node()
        if node is not None:
            place = bisect.bisect_right(self._since, node._sequence_nr()) - 1
            return self._scope[max(0, place)], True, False
        return self._stack[-1], False, False

    def _enter(self, module: torch.nn.Module) -> None:
        self._stack.append(self._names.get(module, self._stack[-1]))
        self._mark()

    def _leave(self) -> None:
        self._stack.pop()
        self._mark()

    def _mark(self) -> None:
        self._since.append(torch.autograd._get_sequence_nr())
        self._scope.append(self._stack[-1])


class AsOnDevice(TorchFunctionMode):
    """Resolves device-dependent calls as on a CUDA device."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `torch.overrides`."""
        kwargs = kwargs or {}
        if function is torch.nn.functional.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if function is torch.nn.functional.dropout:
            return _dropout(*args, **kwargs)
        if function is torch.nn.functional.rms_norm:
            return compiled.rms_norm(*args, **kwargs)
        return function(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention as one operator with its own backward, independent of the GPU's backend."""
    if attn_mask is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -1e9)
        attn_mask = attn_mask.expand(shape)
        if attn_mask.requires_grad:  # only the memory-efficient kernels have its gradient
            efficient = torch.ops.aten._scaled_dot_product_efficient_attention
            return efficient(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]
    call = torch.ops.aten._scaled_dot_product_cudnn_attention
    result: torch.Tensor = call(query, key, value, attn_mask, True, dropout_p, is_causal, False, scale=scale)[0]
    return result


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    if not training or p == 0:
        return input
    result: torch.Tensor = torch.ops.aten.native_dropout(input, p, True)[0]
    return result


class Recorder(TorchDispatchMode):
    """Records each operator call with its tensors."""

    def __init__(self, scopes: Scopes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: list[Storage] = []
        self.calls: list[Call] = []
        self.backward_runs = False
        self._scopes = scopes
        self._index: dict[int, int] = {}  # address of a storage -> its index
        self._computed = WeakTensorKeyDictionary()  # tensors whose values are known -> the same on the CPU

    def register(self, tensor: torch.Tensor, kind: str, name: str) -> int:
        """Register a storage that exists before the step; returns its index."""
        storage = tensor.untyped_storage()
        return self._add(storage, Storage(storage.nbytes(), kind, name))

    def index_of(self, tensor: torch.Tensor) -> int:
        """The index of a tensor's storage."""
        return self._index[tensor.untyped_storage()._cdata]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `torch.utils._python_dispatch`."""
        if any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in types):
            return NotImplemented  # a library's own class of tensors, e.g. torchao's, calls PyTorch's operators in turn
        kwargs = kwargs or {}
        name = function._schema.name
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        known = self._compute(function, args, kwargs, inputs)
        if name == "aten::_local_scalar_dense":
            self._take_down(function, args, kwargs, inputs, [])
            if known is None:
                raise ValueError(f"the model reads a value of a {inputs[0].dtype} tensor, which depends on its input")
            return known
        result = _scaled_mm(args, kwargs) if name == "aten::_scaled_mm" else function(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if known is not None:
            for output, value in zip(outputs, tree_leaves(known)):
                self._computed[output] = value
        self._take_down(function, args, kwargs, inputs, outputs)
        return result

    def _compute(self, function: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor]) -> Any:
        """The call's result on the CPU if all inputs are known and small; else None."""
        if not all(tensor in self._computed for tensor in inputs):
            return None
        if not inputs and kwargs.get("dtype") not in (None, *_INTEGERS):
            return None
        if any(tensor.nbytes > _COMPUTED_BYTES for tensor in inputs) or "empty" in function._schema.name:
            return None
        swap: Callable[[Any], Any] = lambda leaf: self._computed[leaf] if isinstance(leaf, torch.Tensor) else leaf  # noqa: E731
        kwargs = {key: torch.device("cpu") if key == "device" else value for key, value in kwargs.items()}
        try:
            outcome = function(*tree_map(swap, args), **tree_map(swap, kwargs))
        except (RuntimeError, NotImplementedError):
            return None
        tensors = [leaf for leaf in tree_leaves(outcome) if isinstance(leaf, torch.Tensor)]
        is_known = all(tensor.dtype in _INTEGERS and tensor.nbytes <= _COMPUTED_BYTES for tensor in tensors)
        return outcome if is_known else None

    def _add(self, storage: torch.UntypedStorage, described: Storage) -> int:
        self._index[storage._cdata] = len(self.storages)
        self.storages.append(described)
        return len(self.storages) - 1

    def _take_down(
        self, function: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> None:
        schema = function._schema
        scope, backward, _ = self._scopes.current()
        for tensor in inputs:
            if tensor.untyped_storage()._cdata not in self._index:
                self.register(tensor, "constant", "")
        taken = [self._tensor(tensor) for tensor in inputs]
        input_storages = {tensor.untyped_storage()._cdata for tensor in inputs}
        for tensor in outputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in input_storages:
                input_storages.add(storage._cdata)
                self._add(storage, Storage(storage.nbytes(), "own"))
        given = tuple(self._tensor(tensor) for tensor in outputs)
        written = _written(schema, args, kwargs, inputs)
        known = {tensor.storage for tensor in taken}
        view = not written and bool(given) and all(tensor.storage in known for tensor in given)
        adds = self.backward_runs and not backward
        attributes = _attributes(function, args, kwargs, inputs, outputs)
        if compiled.region():
            attributes[compiled.ATTRIBUTE] = compiled.region()
        name = schema.name.replace(f"{compiled.NAMESPACE}::", "aten::")
        call = Call(name, scope, backward or adds, adds, view, tuple(taken), given, written, attributes)
        self.calls.append(call)

    def _tensor(self, tensor: torch.Tensor) -> Tensor:
        return Tensor(self.index_of(tensor), tuple(tensor.shape), tuple(tensor.stride()), _dtype(tensor))


def _written(schema: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor]) -> tuple[int, ...]:
    """Positions of the tensors that a call writes."""
    positions: list[int] = []
    seen = 0
    for position, argument in enumerate(schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        if argument.alias_info is not None and argument.alias_info.is_write:
            positions += range(seen, seen + len(tensors))
        seen += len(tensors)
    return tuple(positions)


def _attributes(
    function: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> dict[str, int | str | list[int]]:
    """Other properties that the work depends on: layout of a product, flags, dimensions and other small numbers."""
    found: dict[str, int | str | list[int]] = {}
    name = function._schema.name
    if name in _LAYOUTS:
        a, b = (inputs[position] for position in _LAYOUTS[name])
        found["layout"] = _layout(a) + _layout(b)
    if name in ("aten::clone", "aten::_to_copy", "aten::copy_"):
        target = inputs[0] if name == "aten::copy_" else outputs[0]
        found["plain"] = int(_same_layout(inputs[-1], target))
    for position, argument in enumerate(function._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name, argument.default_value)
        if argument.name in _IGNORED or (argument.name == "stride" and "conv" not in name):
            continue
        if (
            isinstance(value, bool)
            or (isinstance(value, int) and argument.name in _KEPT)
            or (argument.name == "exponent" and value == 1)
        ):
            found[argument.name] = int(value)
        elif isinstance(value, (list, tuple)) and argument.name in _KEPT and all(type(item) is int for item in value):
            found[argument.name] = list(value)
    return found


def _scaled_mm(args: Any, kwargs: Any) -> torch.Tensor:
    """The result of a product in 8 bits; PyTorch refuses sizes that are no multiples of 16, as those of a trace."""
    dtype = kwargs.get("out_dtype") or (args[6] if len(args) > 6 else None) or args[0].dtype
    return torch.empty((args[0].shape[0], args[1].shape[1]), dtype=dtype, device="meta")


_LAYOUTS = {
    "aten::mm": (0, 1),
    "aten::_scaled_mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
}
_IGNORED = ("pin_memory", "non_blocking", "implicit", "sparse", "scale_grad_by_freq", "half_to_float")
_KEPT = (
    "dim", "dims", "dim0", "dim1", "keepdim", "groups", "stride", "padding", "dilation", "k", "exponent", "flops",
    "exponentials",
)  # fmt: skip


def _layout(matrix: torch.Tensor) -> str:
    """cuBLAS' layout flag: N for contiguous rows, T for contiguous columns."""
    rows, columns = matrix.shape[-2:]
    across, along = matrix.stride()[-2:]
    if along == 1 and across >= max(1, columns):
        return "N"
    return "T" if across == 1 and along >= max(1, rows) else "N"


def _same_layout(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether a copy keeps the memory layout."""
    if (source.dtype, source.shape, source.stride()) != (target.dtype, target.shape, target.stride()):
        return False
    return math.prod(source.shape) == 1 + sum((n - 1) * step for n, step in zip(source.shape, source.stride()))


# ---------------------------------------------------------------- models


def _from_config(path: str, dtype: torch.dtype) -> torch.nn.Module:
    import transformers

    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    config.use_cache = False
    if hasattr(config, "presim_source"):  # of a named model
        del config.presim_source
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            factory = _factory(transformers, config)
            return factory(config)
    finally:
        torch.set_default_dtype(torch.float32)


def _factory(transformers: Any, config: Any) -> Callable[[Any], torch.nn.Module]:
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)  # type: ignore[no-any-return]
    return transformers.AutoModelForCausalLM.from_config  # type: ignore[no-any-return]


def _from_factory(spec: str, dtype: torch.dtype) -> torch.nn.Module:
    import importlib

    module, _, function = spec.partition(":")
    sys.path.insert(0, "")
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            return getattr(importlib.import_module(module), function)()  # type: ignore[no-any-return]
    finally:
        torch.set_default_dtype(torch.float32)


def shorten(model: torch.nn.Module, keep: int = 4) -> list[Repeats]:
    """Cut equal blocks that follow each other in the outermost module lists to ``keep`` at most; returns all blocks."""
    cut: list[Repeats] = []
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.ModuleList) or len(module) < 2:
            continue
        if any(name.startswith(outer.name + ".") for outer in cut):
            continue
        structures = [_structure(block) for block in module]
        if len(set(structures)) == len(structures):
            continue
        kept: list[torch.nn.Module] = []
        start = 0
        for _, run in itertools.groupby(structures):
            count = len(list(run))
            traced = min(keep, count)
            cut.append(Repeats(name, count, traced, len(kept)))
            kept += module[start : start + traced]
            start += count
        del module[:]
        module.extend(kept)
    return cut


_NUMBERS = ("layer_number", "layer_id", "layer_name", "prefix")  # of a block among others


def _structure(module: torch.nn.Module) -> str:
    """Structure of a block, independent of its position."""
    lines = []
    for name, part in module.named_modules():
        plain = {
            key: value
            for key, value in vars(part).items()
            if not key.startswith("_")
            and isinstance(value, (int, float, str, bool, tuple))
            and key not in _NUMBERS
            and "idx" not in key
        }
        lines.append(f"{name} {type(part).__name__} {part.extra_repr()} {sorted(plain.items())}")
    lines += [f"{name} {tuple(p.shape)} {p.dtype}" for name, p in module.named_parameters()]
    return "\n".join(lines)


def _inputs(model: torch.nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Inputs of the model: token ids, labels, images, from its signature and config."""
    import inspect

    accepted = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    images: Any = getattr(config, "vision_config", None) or config
    given: dict[str, Any] = {}
    if "pixel_values" in accepted and hasattr(images, "image_size"):
        sides = (images.image_size,) * 2 if isinstance(images.image_size, int) else images.image_size
        dtype = next(model.parameters()).dtype
        given["pixel_values"] = torch.empty((batch, images.num_channels, *sides), dtype=dtype, device="meta")
    if "input_ids" in accepted or not given:
        positions = getattr(getattr(config, "text_config", None), "max_position_embeddings", sequence)
        tokens = torch.empty((batch, min(sequence, positions)), dtype=torch.int64, device="meta")
        given["input_ids" if "input_ids" in accepted else next(iter(accepted))] = tokens
    if "labels" in accepted:
        shape = given["input_ids"].shape if "input_ids" in given else (batch,)
        given["labels"] = torch.empty(shape, dtype=torch.int64, device="meta")
    if "return_loss" in accepted:
        given["return_loss"] = True
    return given


def _loss(output: Any) -> torch.Tensor:
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    tensor = next(leaf for leaf in tree_leaves(getattr(output, "logits", output)) if isinstance(leaf, torch.Tensor))
    return tensor if tensor.dim() == 0 else tensor.float().sum()


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
    plan = {}
    for key, style in (getattr(model, "tp_plan", None) or {}).items():
        plan[key] = style
    return Recording(
        spec,
        type(model).__name__,
        batch,
        sequence,
        tuple(recorder.storages),
        tuple(recorder.calls),
        gradients,
        tuple(Named(name, tuple(tensor.shape), _dtype(tensor)) for name, tensor in parameters),
        tuple(repeats),
        plan,
        _versions(),
    )


def _noting(recorder: Recorder, gradients: dict[int, str], name: str) -> Callable[[torch.Tensor], None]:
    def note(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            gradients[recorder.index_of(parameter.grad)] = name

    return note


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _versions() -> dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    for name in ("transformers", "vllm"):
        if name in sys.modules:
            versions[name] = sys.modules[name].__version__
    return versions


class Request(msgspec.Struct):
    """What to trace."""

    model: str
    dtype: str  # of floating-point parameters


def main(request_path: str, out: str) -> None:
    """Read a request, write recordings."""
    from presim.graph.sizes import choose_witnesses

    compiled.install()
    kernels.install(FUNCTIONS)
    request = msgspec.json.decode(Path(request_path).read_bytes(), type=Request)
    make = _from_config if Path(request.model).exists() else _from_factory
    if request.model.startswith("vllm:"):
        from presim.graph.vllm_models import build as make
    model = make(request.model, getattr(torch, request.dtype))
    model.train(not request.model.startswith("vllm:"))
    repeats = shorten(model)
    constants: Iterable[int] = {size for tensor in model.parameters() for size in tensor.shape}
    recordings = []
    for witnesses in choose_witnesses(constants):
        recordings.append(record(model, witnesses.batch, witnesses.sequence, repeats, request.model))
        model.zero_grad()
    if unknown := next((call for call in recordings[0].calls if call.operator.startswith("vllm::")), None):
        raise ValueError(
            f"{unknown.scope} runs {unknown.operator}, an operator of vLLM whose kernels are not known here"
        )
    Path(out).write_bytes(msgspec.msgpack.encode(recordings))


if __name__ == "__main__":
    main(*sys.argv[1:])
