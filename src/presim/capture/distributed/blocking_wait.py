"""Let Work.wait() block the host where the script asks PyTorch for that (TORCH_NCCL_BLOCKING_WAIT).

PyTorch then asks again and again whether the collective has ended. On the emulated device every question is answered
with yes, so the host would not wait at all.
"""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import Any

import torch

_VARIABLES = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_ON = ("1", "y", "yes", "t", "true", "on")  # PyTorch's c10d::getCvarBool


def install_if_requested() -> None:
    """Install when a process group is created; PyTorch reads the variable then. Repeated calls do nothing."""
    work_type: Any = torch._C._distributed_c10d.Work
    wait = work_type.wait
    if hasattr(wait, "__wrapped__") or not any(os.environ.get(name, "").lower() in _ON for name in _VARIABLES):
        return

    @functools.wraps(wait)
    def wait_on_host(work: Any, *args: timedelta, **kwargs: timedelta) -> bool:
        done = bool(wait(work, *args, **kwargs))
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()  # it waits for the collective now, so the host does
        return done

    work_type.wait = wait_on_host
