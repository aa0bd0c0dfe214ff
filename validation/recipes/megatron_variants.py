"""``megatron_gpt.py`` with Muon in the place of Adam, with squared ReLU, or with both.

Megatron's own wrapper of Muon takes its steps from the package emerging-optimizers, which is on no index of packages.
What it asks of that package is written down here: momentum and five Newton-Schulz iterations for each matrix.

Takes the options of ``megatron_gpt.py`` besides its own, and those of ``megatron_tests.py`` with ``--tests``.
"""

from __future__ import annotations

import argparse
import sys
import types

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic, as published with Muon


class OrthogonalizedOptimizer(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal before they are added."""

    def __init__(self, params, lr, momentum_beta, *, use_nesterov, weight_decay, scaled_orthogonalize_fn, **others):
        self.use_nesterov, self.scaled_orthogonalize_fn = use_nesterov, scaled_orthogonalize_fn
        super().__init__(params, {"lr": lr, "momentum_beta": momentum_beta, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """One update; state: a momentum of each matrix's shape."""
        for group in self.param_groups:
            beta = group["momentum_beta"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter.grad)
                momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - beta)
                update = parameter.grad.lerp(momentum, beta) if self.use_nesterov else momentum
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(self.orthogonalize(parameter, update), alpha=-group["lr"])


def newton_schulz_tp(gradient, *, steps, partition_dim=None, tp_group=None, mode="duplicated", **others):
    """The orthogonal matrix near a gradient; of its own part alone where tensor parallelism splits it."""
    x = gradient.mT if gradient.size(-2) > gradient.size(-1) else gradient
    x = (x / x.norm().clamp_min(1e-7)).bfloat16()
    a, b, c = _COEFFICIENTS
    for _ in range(steps):
        square = x @ x.mT
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if gradient.size(-2) > gradient.size(-1) else x).to(gradient.dtype)


def get_muon_scale_factor(rows: int, columns: int, mode: str = "spectral") -> float:
    """What brings the update to Adam's size."""
    return max(rows, columns) ** 0.5


def install_muon() -> None:
    """As the package that Megatron looks for."""
    package = types.ModuleType("emerging_optimizers")
    steps = types.ModuleType("emerging_optimizers.orthogonalized_optimizers")
    tools = types.ModuleType("emerging_optimizers.orthogonalized_optimizers.muon_utils")
    steps.OrthogonalizedOptimizer, steps.get_muon_scale_factor = OrthogonalizedOptimizer, get_muon_scale_factor
    tools.newton_schulz_tp = newton_schulz_tp
    sys.modules.update({module.__name__: module for module in (package, steps, tools)})


install_muon()

import megatron_gpt  # noqa: E402 - Megatron looks for Muon when it is imported
import megatron_tests  # noqa: E402
from megatron.core.activations import squared_relu  # noqa: E402
from megatron.core.optimizer.muon import get_megatron_muon_optimizer  # noqa: E402


def parse() -> argparse.Namespace:
    """This recipe's own options; the others are left to ``megatron_gpt``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--squared-relu", action="store_true")
    parser.add_argument("--muon", choices=("whole", "by-layer"), help="every rank all of its state, or some layers'")
    parser.add_argument("--tests", action="store_true", help="steps are those of megatron_tests.py, with its options")
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


def main() -> None:
    """Trains as ``megatron_gpt`` does, or as ``megatron_tests``."""
    own = parse()
    if own.squared_relu:
        for style in megatron_gpt._STYLES.values():
            style |= {"activation_func": squared_relu, "gated_linear_unit": False}
    if own.muon:
        megatron_gpt.get_megatron_optimizer = lambda config, chunks: get_megatron_muon_optimizer(
            config, chunks, layer_wise_distributed_optimizer=own.muon == "by-layer"
        )
    (megatron_tests if own.tests else megatron_gpt).main()


if __name__ == "__main__":
    main()
