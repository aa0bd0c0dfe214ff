"""Output of the exporter: a model's training step, call by call."""

from __future__ import annotations

import msgspec


class Tensor(msgspec.Struct, frozen=True, array_like=True):
    """A tensor at a call, in the numbers of the trace."""

    storage: int  # index into the recording's storages
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


class RecordedCall(msgspec.Struct, frozen=True, array_like=True):
    """One operator call."""

    operator: str
    scope: str
    backward: bool
    adds: bool  # autograd's own sum of gradients
    view: bool
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    written: tuple[int, ...]
    attributes: dict[str, int | str | list[int]]


class Storage(msgspec.Struct, frozen=True, array_like=True):
    """Memory of tensors."""

    bytes: int
    kind: str  # own, parameter, buffer, input
    name: str = ""


class Named(msgspec.Struct, frozen=True, array_like=True):
    """A parameter."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Repeats(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive equal blocks of a module list, of which only some were traced."""

    name: str  # of the module list
    count: int  # number of blocks in the model
    traced: int  # number of traced blocks
    first: int = 0  # number of the first of them in the list as it was traced


class Recording(msgspec.Struct, frozen=True):
    """A step of training, forward and backward."""

    model: str
    root: str
    batch: int
    sequence: int
    storages: tuple[Storage, ...]
    calls: tuple[RecordedCall, ...]
    gradients: dict[int, str]  # storage -> parameter
    parameters: tuple[Named, ...]
    repeats: tuple[Repeats, ...]
    tensor_parallel: dict[str, str]
    versions: dict[str, str]
    notes: tuple[str, ...] = ()
