"""Runs what `presim profile` would time, once each: the signatures stand in the file that is named.

A fill of 1,000 bytes and as many more as there were signatures before says whose run follows, one of 999 that it ended.
"""

import sys
from pathlib import Path

import msgspec
import torch

from presim.cost.profile.kernels import prepared
from presim.trace.signatures import Signature

signatures = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Signature])
marks = torch.empty(1000 + len(signatures), dtype=torch.int8, device="cuda")
for number, signature in enumerate(signatures):
    with prepared(signature) as runs:
        for run in runs:
            torch.cuda.synchronize()
            marks[: 1000 + number].zero_()
            run.call()
            marks[:999].zero_()
torch.cuda.synchronize()
