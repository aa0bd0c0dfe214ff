"""What single launches of hand-written Triton kernels do: their code with the arguments, the grid and known values.

A kernel's code is read once. A launch is evaluated again only where its arguments, its grid, or the values that its
loops depend on differ from those of earlier ones.
"""

from __future__ import annotations

from typing import Any

import torch

from presim.capture.adapters.triton_scalars import Place, Scalar
from presim.capture.adapters.triton_work import Kernel, Launch
from presim.capture.device_values import triton as triton_values
from presim.capture.script.hook import Hook

_FROM_CACHES = 8  # times that a kernel loads its tensors: caches deliver about so much faster than memory
_MOST_READ = 1 << 16  # bytes of one tensor whose values decide how often loops run


class LaunchWork:
    """Of one process."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.guesses: dict[str, None] = {}  # sentences for the reader of the result
        self._kernels: dict[int, Kernel | None] = {}  # by id of the compiled kernel
        self._texts: dict[tuple[Any, ...], str] = {}
        self._kept: list[Any] = []  # compiled kernels stay alive, so that ids stay unique

    def written(self, compiled: Any) -> frozenset[str]:
        """The parameters that a hand-written kernel writes; none where its code is not at hand."""
        kernel = self._kernel(compiled)
        return kernel.written if kernel else frozenset()

    def text(self, jit: Any, compiled: Any, named: dict[str, Any], grid: Any) -> str:
        """Fields of an operator's description that say what a launch does; empty where that is not known.

        ``grid``: as the script gave it: up to three numbers, or a function of the arguments.
        """
        kernel = self._kernel(compiled) if grid is not None else None
        if kernel is None:
            return ""
        parameters = jit.params if hasattr(jit, "params") else jit.fn.params
        given = {parameter.name: parameter.default for parameter in parameters} | named
        programs = _programs(grid, given)
        tensors = {name: tensor for name, value in given.items() if (tensor := _tensor(value)) is not None}
        arguments: dict[str, Scalar] = {
            name: int(value) if isinstance(value, (bool, int)) else value
            for name, value in given.items()
            if isinstance(value, (bool, int, float)) and name in kernel.code.parameters
        }
        sizes = {name: triton_values.host_bytes(tensor) for name, tensor in tensors.items()}
        contents = {name: self._contents(tensors[name]) for name in sorted(kernel.flow.read & tensors.keys())}
        key = (id(compiled), programs, *sorted(arguments.items()), *sizes.items(), *contents.items())
        if key not in self._texts:
            places: dict[str, Scalar] = {name: Place(name) for name in tensors}

            def read(place: Place) -> Scalar:
                values = contents.get(place.tensor)
                return values[place.offset] if values and 0 <= place.offset < len(values) else None

            launch = kernel.launch(arguments | places, sizes, programs, read)
            self._texts[key] = _fields(launch)
            name = jit.fn.__name__
            self.guesses |= {
                f"Loops of the Triton kernel {name} depend on values that are not computed: {guess}.": None
                for guess in launch.guesses
            }
            if remark := _served_by_caches(name, launch):
                self.guesses[remark] = None
        return self._texts[key]

    def _kernel(self, compiled: Any) -> Kernel | None:
        if id(compiled) not in self._kernels:
            self._kept.append(compiled)
            code = getattr(compiled, "asm", {}).get("ttir") if compiled is not None else None
            self._kernels[id(compiled)] = _read(code, compiled) if isinstance(code, str) else None
        return self._kernels[id(compiled)]

    def _contents(self, tensor: Any) -> tuple[int | float, ...] | None:
        """The values of a small tensor, in the order of its memory; None where nobody knows them."""
        size = triton_values.host_bytes(tensor)
        if size > _MOST_READ or (tensor.is_cuda and not self.hook.origin_of(tensor.data_ptr(), size)):
            return None
        flat = torch.as_strided(tensor, (size // tensor.element_size(),), (1,))
        return tuple(triton_values.host_view(flat).tolist())


def _served_by_caches(name: str, launch: Launch) -> str:
    """What a reader should know of a kernel that loads the same again and again; empty for products."""
    if any(launch.products.values()) or launch.rounds <= _FROM_CACHES:
        return ""
    return (
        f"The Triton kernel {name} loads its tensors {launch.rounds:.0f} times. Only memory and instructions are "
        "priced: it may take longer where caches limit it."
    )


def _read(code: str, compiled: Any) -> Kernel | None:
    """None for code that is no kernel's, or of a kind that is not known."""
    metadata = getattr(compiled, "metadata", None)
    target = getattr(metadata, "target", None)
    arch = getattr(target, "arch", 90)
    capability = arch if isinstance(arch, int) else 90
    try:
        return Kernel(code, warps=getattr(metadata, "num_warps", 4), capability=capability)
    except (ValueError, IndexError, KeyError):
        return None


def _programs(grid: Any, given: dict[str, Any]) -> tuple[int, int, int]:
    found = [int(size) for size in (grid(given) if callable(grid) else grid)]
    x, y, z = [*found, 1, 1][:3]
    return x, y, z


def _tensor(value: Any) -> Any:
    """A tensor among the arguments, or that of a descriptor; None for anything else."""
    inner = getattr(value, "base", value)
    return inner if isinstance(inner, torch.Tensor) else None


def _fields(launch: Launch) -> str:
    read, written = sum(launch.read.values()), sum(launch.written.values())
    products = ",".join(f"{dtype}:{flops}" for dtype, flops in sorted(launch.products.items()) if flops)
    return (
        f"moved={read},{written} products={products} instructions={','.join(map(str, launch.instructions))} "
        f"programs={launch.programs} longest={round(100 * launch.longest)}"
    )
