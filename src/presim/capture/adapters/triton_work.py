"""What a launch of a Triton kernel does, from its intermediate code and the launch's arguments and grid.

Bytes to and from memory are those that are loaded and stored, but no more of a tensor than it has: what programs load
again comes from the caches. How often a loop runs that depends on unknown values of the device is bounded by the
tensors: it writes each of its outputs once, or, where it writes nothing, reads each of its inputs once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Mapping

from presim.capture.adapters.triton_costs import Work, cost
from presim.capture.adapters.triton_flow import follow, target, writes
from presim.capture.adapters.triton_ir import parse, walk
from presim.capture.adapters.triton_programs import Open, Read, Runs, follow_programs
from presim.capture.adapters.triton_scalars import Scalar

WARP = 32


@dataclasses.dataclass(frozen=True)
class Launch:
    """What one launch does in all."""

    read: Mapping[str, int]  # bytes that come from memory, by tensor
    written: Mapping[str, int]
    loaded: int  # bytes that programs load, from memory or from a cache
    products: Mapping[str, int]  # FLOPs of matrix products by the type whose units do them
    instructions: tuple[int, int, int]  # plain, special, wide; of all threads
    programs: int
    longest: float  # work of the program that has most, over the mean
    guesses: tuple[str, ...]  # what had to be assumed, as sentences without the kernel's name

    @property
    def rounds(self) -> float:
        """How often it loads what it takes from memory once; caches serve the others."""
        return self.loaded / max(sum(self.read.values()), 1)


class Kernel:
    """A compiled kernel: its code is read once, and evaluated for each launch.

    Args:
        text: TTIR.
        warps: of a program.
        capability: compute capability times ten: 90 for Hopper.

    Raises:
        ValueError: the text has no kernel.
    """

    def __init__(self, text: str, *, warps: int = 4, capability: int = 90) -> None:
        self.code = parse(text)
        self.flow = follow(self.code)
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
        """Names of the parameters that are written."""
        ops = (op for op in walk(self.code.blocks) if writes(op))
        return frozenset(self.flow.origin.get(target(op), "") for op in ops) - {""}

    def launch(
        self, arguments: Mapping[str, Scalar], sizes: Mapping[str, int], grid: tuple[int, int, int], read: Read
    ) -> Launch:
        """What a launch does.

        Args:
            arguments: numbers and addresses, by the names of the code's parameters.
            sizes: bytes of the tensors, by the same names.
            grid: programs along x, y and z.
            read: what lies at an address of the device; None where that is not known.
        """
        found = follow_programs(self.code, self.flow, arguments, grid, read)
        total = self._total(found.runs)
        guesses = {"branches that depend on them are taken where they lead to more work"} if found.guessed else set()
        for loop in found.loops:
            rounds, guess = self._rounds(loop, sizes)
            guesses.add(guess)
            for key, amount in self._total(loop.inside).items():
                total[key] += amount * rounds
        each = [_load(self._total(runs)) for runs in found.each]
        mean = sum(each) / max(len(each), 1)
        return Launch(
            read=_from_memory(total, "load", sizes),
            written=_from_memory(total, "store", sizes),
            loaded=round(sum(amount for (kind, _), amount in total.items() if kind == "load")),
            products={dtype: round(flops) for (kind, dtype), flops in total.items() if kind == "product"},
            instructions=(round(total["do", "plain"]), round(total["do", "special"]), round(total["do", "wide"])),
            programs=found.programs,
            longest=max(each) / mean if mean else 1.0,
            guesses=tuple(sorted(guesses)),
        )

    def _total(self, runs: Runs) -> dict[tuple[str, str], float]:
        total: dict[tuple[str, str], float] = defaultdict(float)
        for block, times in runs.items():
            for key, amount in self.work.get(block, Work()).items():
                total[key] += amount * times
        return total

    def _rounds(self, loop: Open, sizes: Mapping[str, int]) -> tuple[float, str]:
        """How often an open loop runs in all programs together, and the sentence that says so."""
        inside = self._total(loop.inside)
        for kind, sentence in (("store", "write each output once"), ("load", "read each input once")):
            bounds = [sizes[name] / amount for (what, name), amount in inside.items() if what == kind and name in sizes]
            if bounds:
                return max(bounds), f"loops that depend on them are taken to {sentence}"
        return loop.entered, "loops that depend on them are taken to run once"


def _load(work: Mapping[tuple[str, str], float]) -> float:
    """What programs are compared by: FLOPs of products where they have any, else bytes."""
    products = sum(amount for (kind, _), amount in work.items() if kind == "product")
    return products or sum(amount for (kind, _), amount in work.items() if kind in ("load", "store"))


def _from_memory(total: Mapping[tuple[str, str], float], kind: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes by tensor; of tensors whose address lies in memory itself, what is loaded stands for itself."""
    moved = {name: amount for (what, name), amount in total.items() if what == kind and amount}
    return {name: round(min(amount, sizes.get(name, amount))) for name, amount in moved.items()}
