"""Compile all loops for this CPU ahead of time: ``python -m presim.verbs.prepare``, at installation.

Verbs then load machine code in tenths of a second. It is kept where `presim.system.compiled_loops` says, and made
again where sources or the CPU differ.
"""

from __future__ import annotations


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


if __name__ == "__main__":
    compile_loops()
