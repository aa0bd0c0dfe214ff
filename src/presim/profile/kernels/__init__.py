"""From a signature to calls of PyTorch that do just this work, on random numbers: zeros would draw less power."""

from presim.profile.kernels.prepared import Run as Run
from presim.profile.kernels.prepared import prepared as prepared
