"""What a kind of file is to the campaign."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of file. ``make`` writes good inputs into a folder and returns the file that will be broken."""

    name: str
    make: Callable[[Path], Path]
    command: str  # run where the inputs lie; {file}: the broken one; outputs go to ../out
    needs_torch: bool = False  # to make the good file
    call: Callable[[Path], None] | None = None  # reads the file in the command's place, where that would do much else
