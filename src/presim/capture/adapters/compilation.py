"""Attributes device work of torch.compile's own compilation to a scope of its name.

A rank whose graphs lie in inductor's cache already asks for less than the one that filled it: such work is no sign that
ranks differ, and none of a step that is repeated. What is recorded into a CUDA graph keeps its own place: each replay
has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook
from presim.trace.schema import COMPILING


def install(hook: Hook) -> None:
    """Where the script compiles, forward or backward."""
    when_imported("torch._dynamo.callback", functools.partial(_name_compilations, hook))


def _name_compilations(hook: Hook, module: Any) -> None:
    # Callbacks that are registered there are dropped by torch._dynamo.reset().
    handler = module.CompilationCallbackHandler
    scope = hook.scope_id(COMPILING)
    recording = module.CallbackTrigger.CUDAGRAPH_RECORDING
    handler.run_start_callbacks = _then(handler.run_start_callbacks, recording, lambda: hook.enter_scope(scope))
    handler.run_end_callbacks = _then(handler.run_end_callbacks, recording, hook.leave_scope)


def _then(call: Callable[..., None], recording: Any, tell: Callable[[], None]) -> Callable[..., None]:
    """``call``, and then ``tell`` but where a CUDA graph is recorded."""

    @functools.wraps(call)
    def call_and_tell(handler: Any, args: Any) -> None:
        try:
            call(handler, args)
        finally:
            if args.callback_trigger != recording:
                tell()

    return call_and_tell
