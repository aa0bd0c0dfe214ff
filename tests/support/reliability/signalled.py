"""A `presim` command to which a signal comes at the n-th call of a function: ``FUNCTION N SIGNAL ARGUMENTS``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any


def main() -> None:
    """The command line names the function as ``module:name``."""
    from presim.cli import main

    where, count, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    module, _, path = where.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    function, calls = getattr(owner, name), 0

    def hooked(*values: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), number)
        return function(*values, **named)

    setattr(owner, name, hooked)
    main.main(sys.argv[4:])


if __name__ == "__main__":
    main()
