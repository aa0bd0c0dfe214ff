"""Runs what `presim profile` would time on CPU tensors, where PyTorch computes and looks at every index.

Of each signature that stands in the first file, the second gets what PyTorch said against it, or null.
"""

import json
import sys
from pathlib import Path

import msgspec
import torch
from torch.overrides import TorchFunctionMode

from presim.cost.profile.kernels import prepared
from presim.trace.signatures import Signature


class OnTheHost(TorchFunctionMode):
    """What is asked for on the GPU is made in the host's memory."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        options = dict(kwargs or {})
        if options.get("device") == "cuda":
            options.update(device="cpu")
        if function is torch.empty:
            options.pop("pin_memory", None)
        return function(*args, **options)


def refused(signature: Signature) -> str | None:
    try:
        with prepared(signature) as runs:
            for run in runs:
                run.call()
                if run.front:
                    run.front()
    except (RuntimeError, TypeError, IndexError) as error:
        return str(error).splitlines()[0]
    return None


signatures = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Signature])
with OnTheHost():
    Path(sys.argv[2]).write_text(json.dumps(list(map(refused, signatures))))
torch.zeros(1, device="cuda")  # a run that asks nothing of the GPU is refused
