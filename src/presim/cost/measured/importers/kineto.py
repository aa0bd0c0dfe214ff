"""PyTorch profiler (Kineto) traces: device time of operators with recorded shapes.

Needs ``record_shapes=True``. Kernels refer to their operator by ``External id``; the kernels of one call are summed.
Times include the effect of other work in the program.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from presim.cost.measured.measured_rows import Measurement, possible
from presim.errors import InputError
from presim.hardware import catalogue
from presim.system.files import MOST_DIGITS, decode_foreign_json, read_profile
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Attention, Elementwise, Gemm, Normalization, Signature, Softmax

_DTYPES = {"c10::BFloat16": "bfloat16", "c10::Half": "float16", "float": "float32", "double": "float64"}
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_POINTWISE = ("add", "mul", "sub", "div", "silu", "gelu", "relu", "neg", "pow", "rsqrt", "exp", "tanh", "sigmoid")
_BIAS = "bias"
_LONGEST_US = 1e12  # an event of more than a week is damaged
_LARGEST = 1 << 40  # size of a tensor along a dimension


def recognises(root: Path) -> bool:
    """Whether a path is a profiler trace, or a folder of such traces only."""
    return bool(files(root))


def files(root: Path) -> list[Path]:
    """The traces to read."""
    if root.is_file():
        return [root] if root.name.endswith((".json", ".json.gz")) else []
    return sorted([*root.glob("*.pt.trace.json*"), *root.glob("*.json.gz")])


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """All operators with a known signature; ``limit`` is ignored.

    Raises:
        InputError: a file is no PyTorch profiler trace.
    """
    for path in files(root):
        yield from trace_rows(path)


def trace_rows(path: Path) -> Iterator[Measurement | str]:
    """The rows of one trace: the median over the calls of each signature."""
    trace = load(path)
    gpu = _gpu(trace)
    if gpu is None:
        name = _device_name(trace)
        yield f"a GPU that the catalogue does not have: {name}" if name else "a trace that does not name its GPU"
        return
    times_by_signature: dict[Signature, list[float]] = collections.defaultdict(list)
    for operator, microseconds in _calls(trace["traceEvents"]):
        signature = signature_of(operator)
        if isinstance(signature, str):
            yield signature
        else:
            times_by_signature[signature].append(microseconds * 1e3)
    for signature, times in times_by_signature.items():
        middle = statistics.median(times)
        if middle <= 0:
            yield "an operator whose kernels took no time"
            continue
        spread = (max(times) - min(times)) / 2 / middle if len(times) > 1 else 0.1  # unknown spread with only one call
        yield Measurement(
            gpu=gpu, signature=signature, duration_ns=middle, source="kineto", spread=spread, samples=len(times)
        )


def load(path: Path) -> dict[str, Any]:
    """A trace as parsed JSON.

    Raises:
        InputError: the file is no such trace, or unpacks to too much.
    """
    try:
        trace = decode_foreign_json(read_profile(path))
        events = trace["traceEvents"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a trace of PyTorch's profiler: {error}") from error
    if not isinstance(events, list) or not all(map(_is_event, events)):
        raise InputError(f"{path} is not a trace of PyTorch's profiler: traceEvents is not a list of events")
    return dict(trace)


def _is_event(event: Any) -> bool:
    """Whether the fields that are read are of their types; PyTorch writes times as numbers."""
    if not isinstance(event, dict) or not isinstance(event.get("args", {}), dict):
        return False
    spent = event.get("dur", 0)
    return type(spent) in (int, float) and 0 <= spent < _LONGEST_US and isinstance(event.get("cat", ""), str)


def _device_name(trace: dict[str, Any]) -> str:
    devices = trace.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else {}
    return str(first.get("name", "")) if isinstance(first, dict) else ""


def _gpu(trace: dict[str, Any]) -> str | None:
    """The catalogue id by the driver's name of the card, or of a virtual machine's part of it (AMD)."""
    name = _device_name(trace).removesuffix(" VF")
    return next((gpu.id for gpu in catalogue.gpus() if gpu.name == name), None)


def _calls(events: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], float]]:
    """Operators with the device time of everything they launched, us."""
    operators = {_number(event): event for event in events if event.get("cat") == "cpu_op" and _number(event)}
    spent: dict[int, float] = collections.defaultdict(float)
    for event in events:
        if event.get("cat") in _DEVICE_WORK and _number(event) in operators:
            spent[_number(event)] += float(event.get("dur", 0))
    for number, microseconds in spent.items():
        yield operators[number], microseconds


def _number(event: dict[str, Any]) -> int:
    number = event.get("args", {}).get("External id")
    if isinstance(number, str) and number.isdecimal() and len(number) <= MOST_DIGITS:
        return int(number)
    return number if type(number) is int else 0


def signature_of(operator: dict[str, Any]) -> Signature | str:
    """The signature of an operator call, or the reason why there is none."""
    args = operator.get("args", {})
    name = str(operator.get("name", ""))
    if "Input Dims" not in args:
        return "an operator without recorded shapes"
    bare = name.removeprefix("aten::").removesuffix("_")
    make = _MAKERS.get(bare) or (_pointwise if bare in _POINTWISE else None)
    if make is None:
        return f"an operator that is not read: {name}"
    try:
        shapes = [tuple(shape) for shape in args["Input Dims"]]
        dtypes = [_DTYPES.get(dtype, "") for dtype in args.get("Input type", [])]
        signature = make(shapes, dtypes, args, name) if all(map(_is_shape, shapes)) else None
    except (IndexError, KeyError, ValueError, TypeError, StopIteration, ZeroDivisionError):
        signature = None
    if signature is None or not possible(signature):
        return f"arguments of {name} that are not read"
    return signature


def _is_shape(shape: tuple[Any, ...]) -> bool:
    """Sizes of a tensor; of a list of tensors there are lists."""
    return all(isinstance(size, list) or (type(size) is int and 0 <= size <= _LARGEST) for size in shape)


_Maker = Callable[[list[tuple[int, ...]], list[str], dict[str, Any], str], Signature | None]


def _product(shapes: list[tuple[int, ...]], dtypes: list[str], args: dict[str, Any], name: str) -> Signature | None:
    """mm and bmm; addmm with a vector, which is the bias of a linear layer."""
    first = 1 if "add" in name else 0
    first_shape, second_shape = shapes[first], shapes[first + 1]
    if not dtypes[first] or dtypes[first] != dtypes[first + 1]:
        return None
    (*batch, m, k), n = first_shape, second_shape[-1]
    layout = "".join("N" if strides[-1] == 1 else "T" for strides in args["Input Strides"][first : first + 2])
    vector = first == 1 and len(shapes[0]) == 1
    return Gemm(
        m, n, k, batch[0] if batch else 1, dtypes[first], layout=layout,
        accumulate=first == 1 and not vector, epilogue=_BIAS if vector else "",
    )  # fmt: skip


def _attention(shapes: list[tuple[int, ...]], dtypes: list[str], args: dict[str, Any], name: str) -> Signature | None:
    """PyTorch's fused attention: [batch, length, heads, dim] for ``_flash_attention_*``, else heads before length."""
    backward = name.endswith("_backward")
    query, key, value = shapes[1:4] if backward else shapes[0:3]
    length, heads = (1, 2) if "scaled_dot_product" not in name else (2, 1)
    flags = [value for value in args["Concrete Inputs"] if value in ("True", "False")]
    backend = next(word for word in ("flash", "cudnn", "efficient") if word in name)
    return Attention(
        "backward" if backward else "forward", query[0], query[heads], key[heads], query[length], key[length],
        query[3], value[3], flags[0] == "True", dtypes[1 if backward else 0], backend,
    )  # fmt: skip


def _pointwise(shapes: list[tuple[int, ...]], dtypes: list[str], args: dict[str, Any], name: str) -> Signature | None:
    """One result per element; expanded operands are read once."""
    sizes = [(_elements(shape), dtype) for shape, dtype in zip(shapes, dtypes) if shape and dtype]
    elements, dtype = max(sizes)
    read = sum(size * dtype_bytes(operand_dtype) for size, operand_dtype in sizes)
    return Elementwise(read, elements * dtype_bytes(dtype), elements, dtype, operator=name)


def _cast(shapes: list[tuple[int, ...]], dtypes: list[str], args: dict[str, Any], name: str) -> Signature | None:
    """A cast of tensors with the same layout; other copies are strided, or need no kernel."""
    (target, source), strides = dtypes[:2], args["Input Strides"]
    if not (target and source) or target == source or shapes[0] != shapes[1] or strides[0] != strides[1]:
        return None
    elements = _elements(shapes[0])
    return Elementwise(
        elements * dtype_bytes(source), elements * dtype_bytes(target), elements, target, operator="aten::copy_"
    )


def _layer_norm(shapes: list[tuple[int, ...]], dtypes: list[str], args: dict[str, Any], name: str) -> Signature | None:
    """With weight and bias; the mean and deviation of each row are written in float32."""
    elements, row = _elements(shapes[0]), _elements(shapes[2])
    if not all(dtypes[operand] for operand in (0, 2, 3)) or shapes[2] != shapes[3]:
        return None
    read = elements * dtype_bytes(dtypes[0]) + sum(row * dtype_bytes(dtypes[operand]) for operand in (2, 3))
    written = elements * dtype_bytes(dtypes[0]) + elements // row * 8
    return Normalization(read, written, elements, dtypes[0], operator=name, row=row)


def _softmax(shapes: list[tuple[int, ...]], dtypes: list[str], args: dict[str, Any], name: str) -> Signature | None:
    """Along the last dimension, in the type of its input."""
    axis, widened = args["Concrete Inputs"][1:3]
    if not dtypes[0] or int(axis) not in (-1, len(shapes[0]) - 1) or widened != "False":
        return None
    elements = _elements(shapes[0])
    size = elements * dtype_bytes(dtypes[0])
    return Softmax(size, size, elements, dtypes[0], operator=name, row=shapes[0][-1])


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


_MAKERS: dict[str, _Maker] = {
    **dict.fromkeys(("mm", "bmm", "addmm"), _product),
    "copy": _cast,
    "native_layer_norm": _layer_norm,
    **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys((f"_{kind}_attention_{way}" for kind in ("flash",) for way in ("forward", "backward")), _attention),
    **dict.fromkeys(
        (
            f"_scaled_dot_product_{kind}_attention{way}"
            for kind in ("flash", "cudnn", "efficient")
            for way in ("", "_backward")
        ),
        _attention,
    ),
}
