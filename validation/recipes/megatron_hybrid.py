"""Nemotron-H and other hybrids of Mamba, attention and MLP or experts: ``megatron_gpt.py`` with another model.

Needs mamba-ssm and causal-conv1d (`mamba_extensions`). Mamba's scan is Triton's, and so it is in Megatron anyway.

Takes the options of ``megatron_gpt.py`` besides its own. Where the style is "llama" MLPs have squared ReLU; positions
are learned or none.
"""

from __future__ import annotations

import argparse
import sys

from mamba_extensions import install_extensions

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
