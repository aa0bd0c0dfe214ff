"""The dispatch mode that records operator calls and their tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from presim.composition.graph import fused_functions
from presim.composition.graph.export import operands
from presim.composition.graph.export.module_paths import Scopes
from presim.composition.graph.recording import RecordedCall, Storage, Tensor

_COMPUTED_BYTES = 1 << 28  # integer tensors up to this size are computed for real
_INTEGERS = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


class Recorder(TorchDispatchMode):
    """Records each operator call with its tensors."""

    def __init__(self, scopes: Scopes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: list[Storage] = []
        self.calls: list[RecordedCall] = []
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
        computed = self._compute(function, args, kwargs, inputs)
        if name == "aten::_local_scalar_dense":
            self._take_down(function, args, kwargs, inputs, [])
            if computed is None:
                raise ValueError(f"the model reads a value of a {inputs[0].dtype} tensor, which depends on its input")
            return computed
        result = operands.scaled_mm(args, kwargs) if name == "aten::_scaled_mm" else function(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if computed is not None:
            for output, value in zip(outputs, tree_leaves(computed)):
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
        input_tensors = [self._tensor(tensor) for tensor in inputs]
        input_storages = {tensor.untyped_storage()._cdata for tensor in inputs}
        for tensor in outputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in input_storages:
                input_storages.add(storage._cdata)
                self._add(storage, Storage(storage.nbytes(), "own"))
        output_tensors = tuple(self._tensor(tensor) for tensor in outputs)
        written = operands.written(schema, args, kwargs, inputs)
        input_indices = {tensor.storage for tensor in input_tensors}
        view = (
            not written and bool(output_tensors) and all(tensor.storage in input_indices for tensor in output_tensors)
        )
        adds = self.backward_runs and not backward
        attributes = operands.attributes(function, args, kwargs, inputs, outputs)
        if fused_functions.region():
            attributes[fused_functions.ATTRIBUTE] = fused_functions.region()
        name = schema.name.replace(f"{fused_functions.NAMESPACE}::", "aten::")
        call = RecordedCall(
            name, scope, backward or adds, adds, view, tuple(input_tensors), output_tensors, written, attributes
        )
        self.calls.append(call)

    def _tensor(self, tensor: torch.Tensor) -> Tensor:
        return Tensor(self.index_of(tensor), tuple(tensor.shape), tuple(tensor.stride()), operands.dtype_name(tensor))
