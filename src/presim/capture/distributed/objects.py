"""Object collectives (pickled into tensors) in a world in which only some ranks run.

* Objects from an absent rank come from its representative. Without one, the receiver's list stays unchanged; a scatter
  takes the receiver's own part. If that leaves None, the result has a note.
* `gather_object` runs as `all_gather_object`: in a gather the receiving rank sends nothing, so it could not stand in
  for
  absent ranks.
* Large objects travel as files, and their tensors hold the path. Tensors on the device get room for the longest
  message:
  PyTorch pads them to equal length, the padding would have no defined value, and the emulated device keeps at most
  64 KiB of what a host wrote.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from presim.trace.representatives import Representatives

_TENSOR_BYTES = 4096  # bytes of every tensor that holds an object
_PATH_PREFIX = "presim-object:"  # prefix of the path in a large object's tensor


UnknownObjects = set[tuple[str, int, int]]  # function, absent rank, rank that got None for its object


def install(rank: int, representatives: Representatives, folder: Path) -> UnknownObjects:
    """Patch the object collectives. ``folder``: this rank's directory for large objects, which other ranks read."""
    unknown: UnknownObjects = set()
    if not dist.is_available():
        return unknown
    for name in ("broadcast_object_list", "scatter_object_list", "recv_object_list"):
        _handle_absent_senders(name, rank, representatives, unknown)
    _replace_gather(rank, representatives)
    _send_large_as_files(folder)
    return unknown


def notes(unknown: UnknownObjects) -> tuple[str, ...]:
    """Notes for the result."""
    return tuple(
        f"The object that rank {source} sends by {name} is unknown because that rank does not run; rank {rank} "
        f"continues with None. --ranks {','.join(map(str, sorted((source, rank))))} runs both."
        for name, source, rank in sorted(unknown)
    )


def _functions() -> Any:
    return sys.modules["torch.distributed.distributed_c10d"]


def _replace(name: str, function: Any) -> None:
    setattr(_functions(), name, function)
    setattr(dist, name, function)


def _handle_absent_senders(name: str, rank: int, representatives: Representatives, unknown: UnknownObjects) -> None:
    """Handle objects from an absent rank, whose sizes would be read from memory that nothing has written."""
    call = getattr(_functions(), name)
    parameters = inspect.signature(call)

    @functools.wraps(call)
    def receive(*args: Any, **kwargs: Any) -> Any:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        members = dist.get_process_group_ranks(arguments.get("group") or dist.group.WORLD)
        group_source = arguments.get("group_src")
        source = members[group_source] if group_source is not None else arguments.get("src")
        if source is None and name != "recv_object_list":  # without a source, recv_object_list receives from any rank
            source = 0
        if source is None or source in representatives.captured or rank not in members:
            return call(*args, **kwargs)
        representative, result = int(representatives.of([source])[0]), None
        if name == "broadcast_object_list" and representative in members:
            arguments["src"] = representative
            if "group_src" in arguments:
                arguments["group_src"] = None
            result = call(*bound.args, **bound.kwargs)
        elif name == "recv_object_list":
            result = source
        elif (parts := arguments.get("scatter_object_input_list")) is not None:
            arguments["scatter_object_output_list"][0] = parts[members.index(rank)]
        if any(element is None for element in next(iter(arguments.values()))):  # the output list
            unknown.add((name, source, rank))
        return result

    _replace(name, receive)


def _replace_gather(rank: int, representatives: Representatives) -> None:
    call = _functions().gather_object
    parameters = inspect.signature(call)

    @functools.wraps(call)
    def gather(*args: Any, **kwargs: Any) -> None:
        bound = parameters.bind(*args, **kwargs)
        arguments = bound.arguments
        group = arguments.get("group")
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        if rank not in members or set(members) <= set(representatives.captured):
            call(*args, **kwargs)
            return
        gathered: list[Any] = [None] * len(members)
        dist.all_gather_object(gathered, arguments["obj"], group=group)
        if (gather_list := arguments.get("object_gather_list")) is not None:
            gather_list[:] = gathered

    _replace("gather_object", gather)


def _send_large_as_files(folder: Path) -> None:
    module = _functions()
    to_tensor, to_object = module._object_to_tensor, module._tensor_to_object
    numbers = itertools.count()

    @functools.wraps(to_tensor)
    def object_to_tensor(obj: Any, device: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        content, size = to_tensor(obj, "cpu", *args, **kwargs)
        if torch.device(device).type == "cpu":
            return content, size
        if content.numel() > _TENSOR_BYTES:
            path = folder / f"object-{next(numbers)}"
            path.write_bytes(content.numpy().tobytes())
            content, size = to_tensor(f"{_PATH_PREFIX}{path}", "cpu", *args, **kwargs)
        padded = torch.nn.functional.pad(content, (0, _TENSOR_BYTES - content.numel()))
        return padded.to(device)[: content.numel()], size.to(device)

    @functools.wraps(to_object)
    def tensor_to_object(*args: Any, **kwargs: Any) -> Any:
        received = to_object(*args, **kwargs)
        if not isinstance(received, str) or not received.startswith(_PATH_PREFIX):
            return received
        content = torch.frombuffer(bytearray(Path(received.removeprefix(_PATH_PREFIX)).read_bytes()), dtype=torch.uint8)
        return to_object(content, content.numel(), *args[2:], **kwargs)

    module._object_to_tensor, module._tensor_to_object = object_to_tensor, tensor_to_object
