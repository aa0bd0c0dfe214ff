"""What Mamba's packages lack where no CUDA compiler built them. No recipe by itself.

mamba-ssm and causal-conv1d install then by ``MAMBA_SKIP_CUDA_BUILD=TRUE CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE pip install
--no-deps --no-build-isolation mamba-ssm causal-conv1d``.
"""

from __future__ import annotations

import importlib.util
import sys
import types

import torch


def install_extensions() -> None:
    """In the place of those that were not built: causal-conv1d's, by kernels that move the bytes which its own move.

    Four taps for each channel are no work beside reading the input and writing the output. Mamba 1's scan is imported
    and not called.
    """

    def forward(x, weight, bias, seq_idx, initial_states, out, final_states_out, silu) -> None:
        torch.neg(x, out=out)

    def backward(
        x, weight, bias, dout, seq_idx, initial_states, dfinal_states, dx, dweight, dbias, dinitial_states, silu
    ) -> None:
        torch.add(x, dout, out=dx)

    for name in ("causal_conv1d_cuda", "selective_scan_cuda"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(causal_conv1d_fwd=forward, causal_conv1d_bwd=backward)
