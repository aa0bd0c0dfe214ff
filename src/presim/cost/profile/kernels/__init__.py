"""From a signature to calls of PyTorch that do exactly this work, on random numbers, because zeros draw less power."""

from presim.cost.profile.kernels.signature_runs import SignatureRun as SignatureRun
from presim.cost.profile.kernels.signature_runs import prepared as prepared
