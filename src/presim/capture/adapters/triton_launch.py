"""The work of single launches of hand-written Triton kernels: their code with arguments, grid and known values.

A kernel's code is parsed once. A launch is evaluated only if no earlier one had the same arguments, grid and values
that its loops depend on.
"""

from __future__ import annotations

from typing import Any

import torch

from presim.capture.adapters.triton_scalars import Address, Scalar
from presim.capture.adapters.triton_work import TritonKernel, TritonLaunch
from presim.capture.device_values import triton as triton_values
from presim.capture.script.hook import Hook

_CACHED_LOADS = 8  # loads of the same data up to which caches, about this much faster than memory, serve them
_MAX_READ_BYTES = 1 << 16  # largest tensor in bytes whose values are read to follow loops


class LaunchWork:
    """The work of the launches in this process."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.guesses: dict[str, None] = {}  # notes for the result
        self._kernels: dict[int, TritonKernel | None] = {}  # id of the compiled kernel -> its analysis
        self._texts: dict[tuple[Any, ...], str] = {}
        self._kept: list[Any] = []  # compiled kernels are kept alive, so that ids stay unique

    def written_parameters(self, compiled: Any) -> frozenset[str]:
        """The parameters that a hand-written kernel writes; empty without its code."""
        kernel = self._kernel(compiled)
        return kernel.written if kernel else frozenset()

    def describe_launch(self, jit: Any, compiled: Any, named: dict[str, Any], grid: Any) -> str:
        """Fields of an operator's description with the work of a launch; empty if unknown.

        ``grid``: as in the script, up to three numbers or a function of the arguments.
        """
        kernel = self._kernel(compiled) if grid is not None else None
        if kernel is None:
            return ""
        parameters = jit.params if hasattr(jit, "params") else jit.fn.params
        argument_by_name = {parameter.name: parameter.default for parameter in parameters} | named
        programs = _programs(grid, argument_by_name)
        tensors = {name: tensor for name, value in argument_by_name.items() if (tensor := _tensor(value)) is not None}
        arguments: dict[str, Scalar] = {
            name: int(value) if isinstance(value, (bool, int)) else value
            for name, value in argument_by_name.items()
            if isinstance(value, (bool, int, float)) and name in kernel.code.parameters
        }
        sizes = {name: triton_values.host_bytes(tensor) for name, tensor in tensors.items()}
        contents = {name: self._contents(tensors[name]) for name in sorted(kernel.flow.read & tensors.keys())}
        key = (id(compiled), programs, *sorted(arguments.items()), *sizes.items(), *contents.items())
        if key not in self._texts:
            places: dict[str, Scalar] = {name: Address(name) for name in tensors}

            def read(address: Address) -> Scalar:
                values = contents.get(address.tensor)
                return values[address.offset] if values and 0 <= address.offset < len(values) else None

            launch = kernel.work_of_launch(arguments | places, sizes, programs, read)
            self._texts[key] = _fields(launch)
            name = jit.fn.__name__
            self.guesses |= {
                f"Loops of the Triton kernel {name} depend on values that are not computed: {guess}.": None
                for guess in launch.guesses
            }
            if remark := _cache_note(name, launch):
                self.guesses[remark] = None
        return self._texts[key]

    def _kernel(self, compiled: Any) -> TritonKernel | None:
        if id(compiled) not in self._kernels:
            self._kept.append(compiled)
            code = getattr(compiled, "asm", {}).get("ttir") if compiled is not None else None
            self._kernels[id(compiled)] = _read(code, compiled) if isinstance(code, str) else None
        return self._kernels[id(compiled)]

    def _contents(self, tensor: Any) -> tuple[int | float, ...] | None:
        """The values of a small tensor in memory order; None if unknown."""
        size = triton_values.host_bytes(tensor)
        if size > _MAX_READ_BYTES or (tensor.is_cuda and not self.hook.origin_of(tensor.data_ptr(), size)):
            return None
        flat = torch.as_strided(tensor, (size // tensor.element_size(),), (1,))
        return tuple(triton_values.host_view(flat).tolist())


def _cache_note(name: str, launch: TritonLaunch) -> str:
    """A note on a kernel that loads the same data many times; empty for products."""
    if any(launch.products.values()) or launch.rounds <= _CACHED_LOADS:
        return ""
    return (
        f"The Triton kernel {name} loads its tensors {launch.rounds:.0f} times. Only memory and instructions are "
        "priced: it may take longer where caches limit it."
    )


def _read(code: str, compiled: Any) -> TritonKernel | None:
    """Parse a kernel's code; None if it has no kernel or an unknown construct."""
    metadata = getattr(compiled, "metadata", None)
    target = getattr(metadata, "target", None)
    arch = getattr(target, "arch", 90)
    capability = arch if isinstance(arch, int) else 90
    try:
        return TritonKernel(code, warps=getattr(metadata, "num_warps", 4), capability=capability)
    except (ValueError, IndexError, KeyError):
        return None


def _programs(grid: Any, argument_by_name: dict[str, Any]) -> tuple[int, int, int]:
    sizes = [int(size) for size in (grid(argument_by_name) if callable(grid) else grid)]
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _tensor(value: Any) -> Any:
    """The tensor of an argument or descriptor; None for anything else."""
    inner = getattr(value, "base", value)
    return inner if isinstance(inner, torch.Tensor) else None


def _fields(launch: TritonLaunch) -> str:
    read, written = sum(launch.read.values()), sum(launch.written.values())
    products = ",".join(f"{dtype}:{flops}" for dtype, flops in sorted(launch.products.items()) if flops)
    return (
        f"moved={read},{written} products={products} instructions={','.join(map(str, launch.instructions))} "
        f"programs={launch.programs} longest={round(100 * launch.longest)}"
    )
