"""Let the ranks of a node share what torch.compile makes: one rank compiles a graph, the others read it from the cache.

PyTorch's caches keep ranks apart for one reason: their device has another index. Here keys do not hold the index of the
rank's own GPU, and inductor generates code for the current device (PyTorch's "compile on one rank"). A graph that names
another GPU is compiled as before. Backward is compiled with forward where PyTorch stores both together.

Ranks reach a graph at the same time, so one of them takes a lock, and the others wait for its result. A rank stops
waiting where the compiling process does nothing, because that may wait for other ranks in turn.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from presim.capture.script.after_import import when_imported

# A device in pickled bytes: torch.device's arguments, or its text in the code of a graph.
_DEVICE = re.compile(rb"(?<=\x04cuda)K(?s:(.))\x86R|(?<=cuda):(\d+)|(?<=type='cuda'), index=(\d+)")
_shares: ContextVar[bool] = ContextVar("keys_without_index", default=False)  # whether keys leave it out now
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
_RANK = re.compile("distributed|redistribute|c10d|mesh|DTensor|_local")  # in the code of a graph
_POLL_S = 0.05
_IDLE_S = 10.0  # without CPU time of the compiling process, after which waiting ranks compile too


def install() -> None:
    """Install for inductor once the script imports it; nothing for a PyTorch that cannot generate such code."""
    when_imported("torch._inductor.codecache", _leave_out_own_index)
    when_imported("torch._inductor.compile_fx", _generate_for_the_current_device)
    when_imported("torch._dynamo.backends.common", _compile_in_one_rank)


def without_index(pickled: bytes, index: int) -> bytes:
    """The bytes without the index of the GPU where it is the only GPU that they name."""
    indices = {match[1][0] if match[1] else int(match[2] or match[3]) for match in _DEVICE.finditer(pickled)}
    return _DEVICE.sub(b"", pickled) if indices == {index} else pickled


def _has_shared_code(graph: Any, cuda_graphs: Any = None) -> bool:
    """Whether this PyTorch generates code without the index here: not for CUDA graphs, which belong to a GPU.

    ``cuda_graphs``: whether code is to run as CUDA graphs, if that is decided already.
    """
    from torch._inductor import config

    if not hasattr(_compiler_config(), "compile_on_one_rank") or torch.cuda.device_count() < 2:
        return False
    recorded = config.triton.cudagraphs if cuda_graphs is None else bool(cuda_graphs)
    return not (recorded or config.cpp_wrapper or getattr(graph, "meta", {}).get("cudagraph_annotation"))


@contextlib.contextmanager
def _keys_shared(shared: bool) -> Iterator[None]:
    token = _shares.set(shared)
    try:
        yield
    finally:
        _shares.reset(token)


def _compiler_config() -> Any:
    from torch.compiler import config

    return config


def _leave_out_own_index(module: Any) -> None:
    pickler = module.FxGraphCachePickler
    dumps = pickler.dumps

    @functools.wraps(dumps)
    def dumps_without_index(self: Any, value: Any) -> bytes:
        pickled: bytes = dumps(self, value)
        return without_index(pickled, torch.cuda.current_device()) if _shares.get() else pickled

    pickler.dumps = dumps_without_index


def _generate_for_the_current_device(module: Any) -> None:
    compile_graph = module._compile_fx_inner

    @functools.wraps(compile_graph)
    def compile_for_current(graph: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not _has_shared_code(graph, kwargs.get("cudagraphs")) or _uses_other_gpu(graph, example_inputs):
            with _keys_shared(False):
                return compile_graph(graph, example_inputs, *args, **kwargs)
        on_one_rank = _compiler_config().patch(compile_on_one_rank=True)
        with _lock(_identity(graph, example_inputs)), _keys_shared(True), on_one_rank:
            return compile_graph(graph, example_inputs, *args, **kwargs)

    module._compile_fx_inner = compile_for_current


def _uses_other_gpu(graph: Any, example_inputs: Any) -> bool:
    """Whether a graph has tensors on a GPU other than the current one, or names one."""
    devices = {value.device for value in example_inputs if isinstance(value, torch.Tensor)}
    for node in graph.graph.nodes:
        values = (node.meta.get("val"), *node.args, *node.kwargs.values())
        devices |= {value.device for value in values if isinstance(value, torch.Tensor)}
        devices |= {value for value in values if isinstance(value, torch.device)}
    current = torch.cuda.current_device()
    return any(device.type == "cuda" and device.index not in (None, current) for device in devices)


def _compile_in_one_rank(module: Any) -> None:
    compile_module = module.aot_module_simplified

    @functools.wraps(compile_module)
    def compile_once(graph: Any, args: Any, *settings: Any, **options: Any) -> Any:
        if not _has_shared_code(graph):
            return compile_module(graph, args, *settings, **options)
        from torch._functorch import config
        from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

        os.environ.setdefault("TRITON_CACHE_DIR", triton_cache_dir(0))  # a folder for each GPU otherwise
        if not _is_traced_alike(graph, args):
            return compile_module(graph, args, *settings, **options)
        with _lock(_identity(graph, args)), _keys_shared(True), config.patch(force_non_lazy_backward_lowering=True):
            return compile_module(graph, args, *settings, **options)

    module.aot_module_simplified = compile_once


def _is_traced_alike(graph: Any, args: Any) -> bool:
    """Whether each rank traces the same operators, and PyTorch keeps them.

    The operators of DTensors follow from the rank's place in their mesh. Graphs that DistributedDataParallel splits
    into buckets are not kept. Of both, only generated code can be shared: its key has the traced operators.
    """
    context = torch._guards.TracingContext.try_get()
    is_plain = all(type(value) in _PLAIN for value in args if isinstance(value, torch.Tensor))
    return is_plain and not _RANK.search(_code(graph)) and not (context and context.fakify_first_call)


def _code(graph: torch.nn.Module) -> str:
    return "\n".join(getattr(module, "code", "") for module in graph.modules())


def _identity(graph: Any, args: Any) -> str:
    """What ranks that compile the same graph have in common."""
    inputs = [(value.dtype, tuple(map(str, value.shape))) for value in args if isinstance(value, torch.Tensor)]
    text = without_index(f"{_code(graph)} {inputs}".encode(), torch.cuda.current_device())
    return hashlib.sha256(text).hexdigest()


@contextlib.contextmanager
def _lock(identity: str) -> Iterator[None]:
    """Hold a graph's lock, unless the process that holds it stays idle."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder = Path(cache_dir()) / "presim-locks"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / identity, "a+") as file:
        if _take(file):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


def _take(file: IO[str], clock: Callable[[], float] = time.monotonic) -> bool:
    """Wait for a lock; False where its holder does nothing."""
    used, since = -1, clock()
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        file.seek(0)
        now_used = _cpu_ticks(file.read())
        if now_used != used:
            used, since = now_used, clock()
        elif clock() - since > _IDLE_S:
            return False
        signal.sigtimedwait((), _POLL_S)  # sleeps; a sleep of the script's would be part of its host time


def _cpu_ticks(process: str) -> int:
    """CPU time of a process in the kernel's ticks; 0 without it."""
    if not process.isdigit():
        return 0
    try:
        fields = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
