"""Compile all loops for this CPU ahead of time: ``python -m presim.verbs.prepare``, at installation.

Verbs then load machine code in tenths of a second. It is kept where `presim.system.compiled_loops` says, and made
again where sources or the CPU differ.
"""

from __future__ import annotations


def compile_loops() -> None:
    """Compile the loops of the engine, of the memory allocator and of the serving scheduler, or load them."""
    from presim.composition import allocator
    from presim.engine import compiled as engine
    from presim.serving.fast import compiled as scheduler

    engine.compiled_run()
    allocator.compiled()
    scheduler.compiled_run()


if __name__ == "__main__":
    compile_loops()
