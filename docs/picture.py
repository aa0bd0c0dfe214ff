"""Draws docs/pictures/report.svg, the picture in the README: the report of `make demo` as it comes out today.

Run ``python docs/picture.py`` after a change of the report or of prices.
"""

from __future__ import annotations

import os
from pathlib import Path

import presim
from presim.report import terminal

DOCS = Path(__file__).resolve().parent


def main() -> None:
    """Runs the main example and writes the picture."""
    os.chdir(DOCS.parent)
    result = presim.run("examples/llama_fsdp2.py", gpu="h100-sxm", nodes=16, gpus_per_node=8, quiet=True)
    (DOCS / "pictures" / "report.svg").write_text(terminal.svg(result))


if __name__ == "__main__":
    main()
