"""Where a program can learn its rank: environment, process groups, meshes, stores, host names, subprocesses.

`watch` patches each source to report who reads it. What the sources return stays the same, except that a copy of the
environment is a dict that reports reads of its keys. PyTorch asks for the current device thousands of times in a step;
`device_indices` finds the program's own questions in its source.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import platform
import socket
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from presim.capture.launchers.deepspeed_launcher import deepspeed_variables
from presim.capture.launchers.launch import Worker, torchrun_variables
from presim.capture.launchers.mpi import hydra_variables, open_mpi_variables
from presim.capture.launchers.slurm import slurm_variables
from presim.capture.script.after_import import when_imported
from presim.capture.script.expressions import current_expression

Report = Callable[[types.FrameType | None, str], None]  # the frame that reads, and what

ENVIRONMENT = "environment"  # what is reported for a read of all variables
SUBPROCESS = "subprocess"  # it inherits the variables
HOST_NAME = "host name"  # the same for all ranks, because all run on this machine
_SCHEMES = (torchrun_variables, deepspeed_variables, slurm_variables, open_mpi_variables, hydra_variables)
# Variables of launchers that presim does not emulate: MVAPICH, HPE PALS, Flux, IBM JSM, Cray ALPS, PMIx.
_OTHER_LAUNCHERS = (
    *("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_NODEID"),
    *("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK", "ALPS_APP_PE"),
    *("PMIX_RANK", "PMI_RANK", "PMI_LOCAL_RANK", "MPI_LOCALRANKID", "MPI_RANKID", "NODE_RANK", "HOSTNAME"),
)
_STORE_READS = ("get", "add", "append", "check", "compare_set", "multi_get", "queue_pop", "queue_len", "num_keys")
_RANK_FUNCTIONS = (
    "get_rank",
    "get_node_local_rank",
    "get_group_rank",
    "get_global_rank",
    "get_process_group_ranks",
)


def variables() -> frozenset[str]:
    """The variables whose values differ between the ranks of a launcher."""
    schemes = [(scheme(Worker(0, 64, 8, 0)), scheme(Worker(29, 64, 8, 0))) for scheme in _SCHEMES]
    differing = {name for first, other in schemes for name in first | other if first.get(name) != other.get(name)}
    return frozenset(differing | {*_OTHER_LAUNCHERS})


def watch(report: Report) -> None:
    """Report all further reads. Install before the script runs."""
    _watch_variables(report)
    _watch_host(report)
    _watch(subprocess.Popen, "__init__", report, SUBPROCESS)
    _watch(os, "system", report, SUBPROCESS)
    torch.cuda._lazy_call(lambda: _watch_identity(report))
    when_imported("torch.utils.data.distributed", lambda module: _watch(module.DistributedSampler, "__init__", report))
    when_imported("mpi4py.MPI", lambda module: report(sys._getframe().f_back, "mpi4py"))
    if dist.is_available():
        _watch_distributed(report)


def _watch_distributed(report: Report) -> None:
    distributed: Any = sys.modules["torch.distributed.distributed_c10d"]
    for name in _RANK_FUNCTIONS:
        _watch_in_place(getattr(distributed, name), report)
    _watch(dist.ProcessGroup, "rank", report, "ProcessGroup.rank")
    for name in _STORE_READS:
        if hasattr(dist.Store, name):
            _watch(dist.Store, name, report, "store")
    _watch(dist, "new_group", report)
    _watch_in_place(sys.modules["torch.distributed.rendezvous"].rendezvous, report)
    when_imported("torch.distributed.device_mesh", lambda module: _watch_mesh(module.DeviceMesh, report))


def _watch_mesh(mesh: Any, report: Report) -> None:
    for name in ("get_rank", "get_local_rank", "get_coordinate"):
        _watch(mesh, name, report)


def _watch_host(report: Report) -> None:
    for module, names in ((socket, ("gethostname", "getfqdn")), (os, ("uname",)), (platform, ("node", "uname"))):
        for name in names:
            _watch(module, name, report, HOST_NAME)


def _watch_identity(report: Report) -> None:
    """Watch what tells devices apart, once PyTorch has defined the class of their properties."""
    properties = getattr(torch._C, "_CudaDeviceProperties", None)
    for name in ("uuid", "pci_bus_id", "pci_device_id", "pci_domain_id"):
        if attribute := vars(properties).get(name) if properties else None:
            setattr(properties, name, property(_reported(attribute.__get__, report, f"device {name}")))


class _Copy(dict[Any, Any]):
    """A copy of the environment that reports reads of variables that differ between ranks."""

    def __init__(self, content: dict[Any, Any], names: frozenset[Any], report: Report) -> None:
        super().__init__(content)
        self._names, self._report = names, report

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (list(dict.items(self)),)

    def copy(self) -> _Copy:
        return _Copy(dict(dict.items(self)), self._names, self._report)


def _watch_variables(report: Report) -> None:
    environ: Any = os._Environ
    read, names = environ.__getitem__, variables()
    keys = names | {name.encode() for name in names}

    def watched(environment: Any, key: Any) -> Any:
        if key in keys:
            frame = sys._getframe().f_back
            report(frame, ENVIRONMENT if frame and _reads_all(frame) else key if isinstance(key, str) else key.decode())
        return read(environment, key)

    def copy(environment: Any) -> _Copy:
        return _Copy({key: read(environment, key) for key in environment}, keys, report)

    environ.__getitem__, environ.copy = watched, copy
    for name in ("__getitem__", "get", "pop", "setdefault"):
        setattr(_Copy, name, _reading_key(getattr(dict, name)))
    for name in ("__iter__", "items", "values"):
        setattr(_Copy, name, _reading_all(getattr(dict, name)))


def _reads_all(frame: types.FrameType) -> bool:
    """Whether Python's own code iterates over all variables here."""
    code = frame.f_code
    return code.co_filename.startswith("<frozen") and code.co_name in ("__iter__", "__or__", "__ror__")


def is_environment_copy(frame: types.FrameType) -> bool:
    """Whether a frame makes a dict of all variables, as `dict(os.environ)` does."""
    current = current_expression(frame)
    if current is None or "environ" not in ast.unparse(current[1]):
        return False
    expression = current[1]
    is_dict = (
        isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == "dict"
    )
    is_update = isinstance(expression, ast.Call) and ast.unparse(expression.func).endswith(".update")
    return is_dict or is_update or isinstance(expression, ast.Dict)


def _reading_key(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def watched(copy: _Copy, key: Any, *default: Any) -> Any:
        if key in copy._names:
            copy._report(sys._getframe().f_back, str(key))
        return call(copy, key, *default)

    return watched


def _reading_all(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def watched(copy: _Copy) -> Any:
        copy._report(sys._getframe().f_back, ENVIRONMENT)
        return call(copy)

    return watched


def _watch(owner: Any, name: str, report: Report, source: str = "") -> None:
    call = getattr(owner, name)
    setattr(owner, name, _reported(call, report, source or (owner.__name__ if name == "__init__" else name)))


def _reported(call: Callable[..., Any], report: Report, source: str) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        report(sys._getframe().f_back, source)
        return call(*args, **kwargs)

    return functools.update_wrapper(watched, call)


_numbers = itertools.count()


def _watch_in_place(function: Any, report: Report) -> None:
    """Patch a function but keep the object: torch.compile compares it, and others have imported it by name."""
    name = function.__name__
    original = types.FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__

    def watched(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # which cannot trace frames
            return original(*args, **kwargs)
        forwarding = sys._getframe().f_back
        report(forwarding.f_back if forwarding else None, name)  # None if C++ calls it
        return original(*args, **kwargs)

    hidden = f"_presim_{name}_{next(_numbers)}"
    function.__globals__[hidden] = watched
    function.__code__ = _forwarding(hidden)
    function.__defaults__ = function.__kwdefaults__ = None


def _forwarding(name: str) -> types.CodeType:
    """Code of a function that forwards its arguments to a global of its module."""
    space: dict[str, Any] = {}
    exec(f"def forward(*args, **kwargs):\n    return {name}(*args, **kwargs)", space)
    code: types.CodeType = space["forward"].__code__
    return code
