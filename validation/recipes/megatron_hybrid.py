"""Nemotron-H and other hybrids of Mamba, attention and MLP or experts: ``megatron_gpt.py`` with another model.

Needs mamba-ssm and causal-conv1d; without a CUDA compiler they install by ``MAMBA_SKIP_CUDA_BUILD=TRUE
CAUSAL_CONV1D_SKIP_CUDA_BUILD=TRUE pip install --no-deps --no-build-isolation mamba-ssm causal-conv1d``. Mamba's scan is
Triton's then, and so it is in Megatron anyway; the short convolution's extension is stood in for, see below.

Takes the options of ``megatron_gpt.py`` besides its own. Where the style is "llama" MLPs have squared ReLU; positions
are learned or none.
"""

from __future__ import annotations

import argparse
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


install_extensions()

import megatron_gpt  # noqa: E402 - whose model is found only with the extension in its place
from megatron.core.activations import squared_relu  # noqa: E402
from megatron.core.models.mamba import MambaModel  # noqa: E402
from megatron.core.models.mamba.mamba_layer_specs import mamba_stack_spec  # noqa: E402


def parse() -> argparse.Namespace:
    """This recipe's own options; the others are left to ``megatron_gpt``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--pattern", required=True, help="a letter a layer: M Mamba, * attention, - MLP, E experts")
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


def main() -> None:
    """Trains as ``megatron_gpt`` does."""
    own = parse()

    def build(config, spec, mtp_block_spec=None, position_embedding_type=None, **common):
        positions = position_embedding_type if position_embedding_type == "learned_absolute" else "none"
        return MambaModel(
            config, mamba_stack_spec, hybrid_override_pattern=own.pattern, position_embedding_type=positions, **common
        )

    megatron_gpt.GPTModel = build
    megatron_gpt._STYLES["llama"] = {"activation_func": squared_relu, "add_bias_linear": False}
    megatron_gpt.main()


if __name__ == "__main__":
    main()
