"""Objects that ranks pickle into tensors to send each other, in a world of which only some ranks run.

* From a rank that does not run they come from the rank that stands for it, or stay as this rank has them: of a list to
  be scattered its own part. Where it has none, nobody knows them, and the result says so.
* Gathered at one rank they come as gathered at all: the receiver itself sends nothing then that could stand for what
  absent ranks send.
* Larger ones travel as files, and their tensors say where: such a tensor is shorter than the object. Tensors on the
  device have room for the longest, as PyTorch makes them equally long: what it adds to one would be nobody's value, and
  the emulated device holds no more than 64 KiB of what a host wrote.
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

_ROOM = 4096  # bytes of every tensor that holds an object
_MARK = "presim-object:"  # begins what stands in the tensor of a large one


Unheard = set[tuple[str, int, int]]  # function, rank that does not run, rank that got None for what the first one has


def install(rank: int, representatives: Representatives, folder: Path) -> Unheard:
    """Before the script runs. ``folder``: of this rank, for large objects; the other ranks of the run can read it."""
    unheard: Unheard = set()
    if not dist.is_available():
        return unheard
    for name in ("broadcast_object_list", "scatter_object_list", "recv_object_list"):
        _hear_objects(name, rank, representatives, unheard)
    _gather_at_all(rank, representatives)
    _carry_large(folder)
    return unheard


def notes(unheard: Unheard) -> tuple[str, ...]:
    """What a reader of the result should know."""
    return tuple(
        f"What rank {source} hands out by {name} is not known, since it does not run: rank {rank} goes on with None. "
        f"--ranks {','.join(map(str, sorted((source, rank))))} runs both."
        for name, source, rank in sorted(unheard)
    )


def _functions() -> Any:
    return sys.modules["torch.distributed.distributed_c10d"]


def _replace(name: str, function: Any) -> None:
    setattr(_functions(), name, function)
    setattr(dist, name, function)


def _hear_objects(name: str, rank: int, representatives: Representatives, unheard: Unheard) -> None:
    """Objects from a rank that does not run: their sizes would be read from memory that nobody has written."""
    call = getattr(_functions(), name)
    parameters = inspect.signature(call)

    @functools.wraps(call)
    def hear(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs)
        given.apply_defaults()
        found = given.arguments
        members = dist.get_process_group_ranks(found.get("group") or dist.group.WORLD)
        at = found.get("group_src")
        source = members[at] if at is not None else found.get("src")
        if source is None and name != "recv_object_list":  # which hears any rank then
            source = 0
        if source is None or source in representatives.captured or rank not in members:
            return call(*args, **kwargs)
        voice, result = int(representatives.of([source])[0]), None
        if name == "broadcast_object_list" and voice in members:
            found["src"] = voice
            if "group_src" in found:
                found["group_src"] = None
            result = call(*given.args, **given.kwargs)
        elif name == "recv_object_list":
            result = source
        elif (parts := found.get("scatter_object_input_list")) is not None:
            found["scatter_object_output_list"][0] = parts[members.index(rank)]
        if any(each is None for each in next(iter(found.values()))):  # the list that is written
            unheard.add((name, source, rank))
        return result

    _replace(name, hear)


def _gather_at_all(rank: int, representatives: Representatives) -> None:
    call = _functions().gather_object
    parameters = inspect.signature(call)

    @functools.wraps(call)
    def gather(*args: Any, **kwargs: Any) -> None:
        given = parameters.bind(*args, **kwargs)
        found = given.arguments
        group = found.get("group")
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        if rank not in members or set(members) <= set(representatives.captured):
            call(*args, **kwargs)
            return
        gathered: list[Any] = [None] * len(members)
        dist.all_gather_object(gathered, found["obj"], group=group)
        if (wanted := found.get("object_gather_list")) is not None:
            wanted[:] = gathered

    _replace("gather_object", gather)


def _carry_large(folder: Path) -> None:
    module = _functions()
    to_tensor, to_object = module._object_to_tensor, module._tensor_to_object
    numbers = itertools.count()

    @functools.wraps(to_tensor)
    def object_to_tensor(obj: Any, device: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        content, size = to_tensor(obj, "cpu", *args, **kwargs)
        if torch.device(device).type == "cpu":
            return content, size
        if content.numel() > _ROOM:
            path = folder / f"object-{next(numbers)}"
            path.write_bytes(content.numpy().tobytes())
            content, size = to_tensor(f"{_MARK}{path}", "cpu", *args, **kwargs)
        padded = torch.nn.functional.pad(content, (0, _ROOM - content.numel()))
        return padded.to(device)[: content.numel()], size.to(device)

    @functools.wraps(to_object)
    def tensor_to_object(*args: Any, **kwargs: Any) -> Any:
        found = to_object(*args, **kwargs)
        if not isinstance(found, str) or not found.startswith(_MARK):
            return found
        content = torch.frombuffer(bytearray(Path(found.removeprefix(_MARK)).read_bytes()), dtype=torch.uint8)
        return to_object(content, content.numel(), *args[2:], **kwargs)

    module._object_to_tensor, module._tensor_to_object = object_to_tensor, tensor_to_object
