"""How each framework runs the passes of a plan: quantised and sparse layers, fused kernels, selective recomputation.

Names are those of torchtitan 0.3, Megatron-LM with megatron-core 0.16.1, and torchao 0.18 in accelerate's program.
"""

from __future__ import annotations

from collections.abc import Mapping

from presim.composition.plan import Plan
from presim.errors import InputError

# framework -> pass -> words: Megatron-LM's options, torchtitan's settings, or the name that accelerate's program takes
_SUPPORT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "torchtitan": {
        "fp8-row": ("Float8LinearConverter",),
        "fp8-tensor": ("Float8LinearConverter tensorwise",),
        "mxfp8": ("MXFP8LinearConverter",),
        "nvfp4": ("NVFP4LinearConverter",),
        "fuse-pointwise": ("compile",),
        "recompute-selective": ("selective",),
    },
    "Megatron-LM": {
        "fp8-tensor": ("--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
        "fp8-block": ("--fp8-format", "hybrid", "--fp8-recipe", "blockwise"),
        "mxfp8": ("--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
        "nvfp4": ("--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"),
        "fuse-norm": (),  # Transformer Engine's layers
        "fuse-activation": (),
        "fuse-rotary": (),
        "fuse-cross-entropy": ("--cross-entropy-loss-fusion",),
    },
    "accelerate": {name: (name,) for name in ("fp8-tensor", "fp8-row", "int8", "sparse24")},
    "deepspeed": {},
}
_INFERENCE = ("w4a16",)  # without gradients


def words_of(framework: str, plan: Plan) -> list[str]:
    """The framework's words for the passes of a plan.

    Raises:
        InputError: the framework has no such layers; the frameworks that have them are named.
    """
    words_by_pass = _SUPPORT[framework]
    words: list[str] = []
    for name in plan.passes:
        if name in _INFERENCE:
            raise InputError(
                f"{framework} cannot train with {name}, a format of inference; serve it, see `presim serve`"
            )
        if name not in words_by_pass:
            capable_frameworks = [candidate for candidate, passes in _SUPPORT.items() if name in passes]
            alternatives = ", and neither can the other frameworks"
            if capable_frameworks:
                alternatives = f"; {' and '.join(capable_frameworks)} can"
            raise InputError(f"{framework} cannot express this plan's pass {name}{alternatives}")
        words += words_by_pass[name]
    return words
