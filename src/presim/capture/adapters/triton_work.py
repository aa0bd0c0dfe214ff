"""The work of a Triton kernel's launch, from its intermediate code, arguments and grid.

Memory traffic is the bytes loaded and stored, limited to each tensor's size: repeated loads are served by caches. The
iterations of a loop that depends on unknown device values are bounded by the tensors: it writes each output once or, if
it writes nothing, reads each input once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Mapping

from presim.capture.adapters.triton_costs import Work, cost
from presim.capture.adapters.triton_flow import accessed_pointer, analyse_flow, writes_memory
from presim.capture.adapters.triton_ir import parse, walk
from presim.capture.adapters.triton_programs import Read, Runs, UnknownLoop, follow_programs
from presim.capture.adapters.triton_scalars import Scalar

WARP = 32


@dataclasses.dataclass(frozen=True)
class TritonLaunch:
    """The total work of one launch."""

    read: Mapping[str, int]  # tensor -> bytes from memory
    written: Mapping[str, int]
    loaded: int  # bytes loaded by programs, from memory or cache
    products: Mapping[str, int]  # dtype whose units are used -> FLOPs of matrix products
    instructions: tuple[int, int, int]  # plain, special, wide; of all threads
    programs: int
    longest: float  # work of the longest program relative to the mean
    guesses: tuple[str, ...]  # assumptions, as clauses without the kernel's name

    @property
    def rounds(self) -> float:
        """How often each byte from memory is loaded; caches serve the repetitions."""
        return self.loaded / max(sum(self.read.values()), 1)


class TritonKernel:
    """A compiled kernel: its code is parsed once and evaluated for each launch.

    Args:
        text: TTIR.
        warps: warps per program.
        capability: compute capability times ten, such as 90 for Hopper.

    Raises:
        ValueError: the text has no kernel.
    """

    def __init__(self, text: str, *, warps: int = 4, capability: int = 90) -> None:
        self.code = parse(text)
        self.flow = analyse_flow(self.code)
        blocks = [
            *self.code.blocks,
            *(block for op in walk(self.code.blocks) for region in op.regions for block in region),
        ]
        self.work = {
            id(block): sum((cost(op, self.flow, warps * WARP, capability) for op in block.ops), Counter())
            for block in blocks
        }

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """Names of the written parameters."""
        ops = (op for op in walk(self.code.blocks) if writes_memory(op))
        return frozenset(self.flow.origin.get(accessed_pointer(op), "") for op in ops) - {""}

    def work_of_launch(
        self, arguments: Mapping[str, Scalar], sizes: Mapping[str, int], grid: tuple[int, int, int], read: Read
    ) -> TritonLaunch:
        """The work of one launch.

        Args:
            arguments: parameter name -> number or address.
            sizes: parameter name -> bytes of the tensor.
            grid: programs along x, y and z.
            read: returns the value at a device address, None if unknown.
        """
        block_runs = follow_programs(self.code, self.flow, arguments, grid, read)
        total = self._total(block_runs.runs)
        guesses = (
            {"branches that depend on them are assumed to take the side with more work"}
            if block_runs.guessed
            else set()
        )
        for loop in block_runs.loops:
            rounds, guess = self._rounds(loop, sizes)
            guesses.add(guess)
            for key, amount in self._total(loop.inside).items():
                total[key] += amount * rounds
        program_loads = [_program_load(self._total(runs)) for runs in block_runs.runs_by_program]
        mean = sum(program_loads) / max(len(program_loads), 1)
        return TritonLaunch(
            read=_from_memory(total, "load", sizes),
            written=_from_memory(total, "store", sizes),
            loaded=round(sum(amount for (kind, _), amount in total.items() if kind == "load")),
            products={dtype: round(flops) for (kind, dtype), flops in total.items() if kind == "product"},
            instructions=(round(total["do", "plain"]), round(total["do", "special"]), round(total["do", "wide"])),
            programs=block_runs.programs,
            longest=max(program_loads) / mean if mean else 1.0,
            guesses=tuple(sorted(guesses)),
        )

    def _total(self, runs: Runs) -> dict[tuple[str, str], float]:
        total: dict[tuple[str, str], float] = defaultdict(float)
        for block, times in runs.items():
            for key, amount in self.work.get(block, Work()).items():
                total[key] += amount * times
        return total

    def _rounds(self, loop: UnknownLoop, sizes: Mapping[str, int]) -> tuple[float, str]:
        """How often a loop with unknown trip count runs in all programs, and the assumption made."""
        inside = self._total(loop.inside)
        for kind, sentence in (("store", "write each output once"), ("load", "read each input once")):
            bounds = [
                sizes[name] / amount for (access, name), amount in inside.items() if access == kind and name in sizes
            ]
            if bounds:
                return max(bounds), f"loops that depend on them are assumed to {sentence}"
        return loop.entered, "loops that depend on them are assumed to run once"


def _program_load(work: Mapping[tuple[str, str], float]) -> float:
    """The measure for comparing programs: FLOPs of products if any, else bytes."""
    products = sum(amount for (kind, _), amount in work.items() if kind == "product")
    return products or sum(amount for (kind, _), amount in work.items() if kind in ("load", "store"))


def _from_memory(total: Mapping[tuple[str, str], float], kind: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes by tensor, limited to its size if that is known."""
    bytes_by_tensor = {name: amount for (access, name), amount in total.items() if access == kind and amount}
    return {name: round(min(amount, sizes.get(name, amount))) for name, amount in bytes_by_tensor.items()}
