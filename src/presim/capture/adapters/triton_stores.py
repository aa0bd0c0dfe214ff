"""Which of its parameters a Triton kernel writes, by its intermediate code: names of hand-written kernels say little.

The code has each value once, with the parameters under their own names. A pointer is followed from the parameter
through whatever computes another pointer from it to the stores and atomic operations. What is chosen between two
pointers at run time, or read from memory, is not followed.
"""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"%(\w+): !tt\.(?:ptr|tensordesc)<")
_VALUE = re.compile(r"%[\w#]+")
_RESULT = re.compile(r"\s*(%\w+)(?::\d+)? = (\S+)")
_LOOP = re.compile(r"iter_args\(([^)]*)\)")
_CARRIED = re.compile(r"(%\w+) = (%[\w#]+)")
_WRITES = re.compile(
    r"\s*(?:%\w+ = )?\"?tt\.(?:store|atomic_rmw|atomic_cas|(?:experimental_)?descriptor_(?:store|reduce|scatter))\b"
)
_READS = ("tt.load", "tt.descriptor_load", "tt.atomic_rmw", "tt.atomic_cas")


def written_parameters(code: str) -> frozenset[str]:
    """Names of the parameters that are written; ``code``: the kernel's, as Triton keeps it (``asm["ttir"]``)."""
    origin: dict[str, str] = {}  # pointer -> parameter
    written = set()
    for line in code.splitlines():
        if "tt.func public" in line:
            origin |= {f"%{name}": name for name in _PARAMETER.findall(line)}
        elif _WRITES.match(line):
            written.add(origin.get(_operands(line)[0], ""))
        elif loop := _LOOP.search(line):
            _follow_loop(line, _CARRIED.findall(loop[1]), origin)
        elif (made := _RESULT.match(line)) and "!tt." in line and made[2] not in _READS:
            source = next((origin[value] for value in _operands(line) if value in origin), None)
            if source is not None:
                origin[made[1]] = source
    return frozenset(written - {""})


def _operands(line: str) -> list[str]:
    made = _RESULT.match(line)
    return _VALUE.findall(line, made.end() if made else 0)


def _follow_loop(line: str, carried: list[tuple[str, str]], origin: dict[str, str]) -> None:
    """A pointer that a loop moves on is in the same tensor in each round, and after it."""
    made = _RESULT.match(line)
    for place, (inside, before) in enumerate(carried):
        if before in origin:
            origin[inside] = origin[before]
            if made:
                origin[f"{made[1]}#{place}" if len(carried) > 1 else made[1]] = origin[before]
