"""Attribute device work of torch.compile's own compilation to a separate scope.

A rank that finds its graphs in inductor's cache launches less than the one that filled it. This work is no sign that
ranks differ, and not part of a repeated step. Work recorded into a CUDA graph keeps its scope, because each replay has
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook
from presim.trace.schema import COMPILING


def install(hook: Hook) -> None:
    """Install for forward and backward compilation."""
    when_imported("torch._dynamo.callback", functools.partial(_name_compilations, hook))


def _name_compilations(hook: Hook, module: Any) -> None:
    # torch._dynamo.reset() would drop registered callbacks.
    handler = module.CompilationCallbackHandler
    scope = hook.scope_id(COMPILING)
    recording = module.CallbackTrigger.CUDAGRAPH_RECORDING
    handler.run_start_callbacks = _and_then(handler.run_start_callbacks, recording, lambda: hook.enter_scope(scope))
    handler.run_end_callbacks = _and_then(handler.run_end_callbacks, recording, hook.leave_scope)


def _and_then(call: Callable[..., None], recording: Any, callback: Callable[[], None]) -> Callable[..., None]:
    """Run ``call``, then ``callback`` unless a CUDA graph is recorded."""

    @functools.wraps(call)
    def call_both(handler: Any, args: Any) -> None:
        try:
            call(handler, args)
        finally:
            if args.callback_trigger != recording:
                callback()

    return call_both
