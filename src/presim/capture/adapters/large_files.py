"""Load large files of torch.load as memory mappings.

Every rank that loads a checkpoint reads all of it into host memory first. The ranks of an emulated node run on one
machine, which may not have as much, and large values are not copied to the emulated device anyway. A mapping has the
same content and is read only where the script uses it. A large file is therefore replaced rather than overwritten.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

_LARGE_BYTES = 1 << 28


def install() -> None:
    """Install before the script runs."""
    load, save = torch.load, torch.save

    @functools.wraps(load)
    def load_mapped(f: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mmap") is None and _is_large_archive(f):
            kwargs["mmap"] = True
        return load(f, *args, **kwargs)

    @functools.wraps(save)
    def save_anew(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if _is_large_archive(f):
            os.unlink(os.path.realpath(f))
        save(obj, f, *args, **kwargs)

    torch.load, torch.save = load_mapped, save_anew


def _is_large_archive(file: Any) -> bool:
    if not isinstance(file, (str, os.PathLike)) or not os.path.isfile(file) or os.path.getsize(file) < _LARGE_BYTES:
        return False
    with open(file, "rb") as stream:
        return stream.read(4) == b"PK\x03\x04"
