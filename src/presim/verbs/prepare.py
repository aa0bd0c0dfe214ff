"""Compile all loops for this CPU ahead of time: ``python -m presim.verbs.prepare``, at installation.

Verbs then load machine code in tenths of a second. It is kept where `presim.system.compiled_loops` says, and made
again where sources or the CPU differ. With ``--portable FOLDER``, code for most CPUs is written into a folder, as a
wheel has it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def compile_loops() -> None:
    """Compile the loops of the engine, of the memory allocator and of the serving scheduler, or load them."""
    from presim.composition import allocator
    from presim.engine import compiled_loop as engine
    from presim.serving.fast import compiled_scheduler as scheduler

    engine.compiled_run()
    allocator.compiled()
    scheduler.compiled_run()


def prefer_compiled_steps() -> None:
    """Use the compiled loops of the engine and of the allocator from now on in this process, however small its jobs.

    For processes that answer many questions: they do not wait until interpreting has cost as much as loading.
    """
    from presim.composition import allocator
    from presim.engine import loop_choice

    loop_choice.prefer_compiled()
    allocator.prefer_compiled()


def main() -> None:
    """Compile for this CPU, or for a wheel."""
    from presim.system.machine_code import portable_variables

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--portable", type=Path, metavar="FOLDER", help="write code for a wheel into this folder")
    if folder := parser.parse_args().portable:
        folder.mkdir(parents=True, exist_ok=True)
        os.environ |= portable_variables(folder)  # numba reads them as it is imported
    compile_loops()


if __name__ == "__main__":
    main()
