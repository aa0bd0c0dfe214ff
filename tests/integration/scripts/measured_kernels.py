"""Runs what `presim profile` would time, once each: the signatures stand in the file that is named."""

import sys
from pathlib import Path

import msgspec
import torch

from presim.profile.kernels import prepared
from presim.trace.signatures import Signature

for signature in msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Signature]):
    with prepared(signature) as run:
        torch.cuda.synchronize()
        run()
torch.cuda.synchronize()
