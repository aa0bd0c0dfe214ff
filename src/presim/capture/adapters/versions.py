"""Frameworks that a script uses: which versions were tried here, and what to install where one is missing."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

# First and last minor versions that ran the examples and tests; what a script uses of others is not known to work.
TRIED = {
    "accelerate": ("1.15", "1.15"),
    "bitsandbytes": ("0.50", "0.50"),
    "deepspeed": ("0.19", "0.19"),
    "diffusers": ("0.42", "0.42"),
    "fbgemm_gpu": ("1.9", "1.9"),
    "lightning": ("2.6", "2.6"),
    "megatron.core": ("0.16", "0.16"),
    "peft": ("0.21", "0.21"),
    "timm": ("1.0", "1.0"),
    "torch_geometric": ("2.8", "2.8"),
    "torchao": ("0.18", "0.18"),
    "torchtitan": ("0.3", "0.3"),
    "transformer_engine": ("2.20", "2.20"),
    "transformers": ("5.20", "5.23"),
    "vllm": ("0.33", "0.33"),
}
# Distributions that are called otherwise than the module they bring.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "fla": "flash-linear-attention",
    "megatron": "megatron-core",
    "sklearn": "scikit-learn",
    "tvm_ffi": "apache-tvm-ffi",
    "yaml": "pyyaml",
}


def loaded_versions() -> dict[str, str]:
    """Versions of the frameworks that this process has imported."""
    names = (*TRIED, "triton")
    return {name: str(getattr(sys.modules[name], "__version__", "?")) for name in names if name in sys.modules}


def untried(versions: Mapping[str, str]) -> list[str]:
    """A sentence for each framework whose version lies outside the range that was tried."""
    found = ((name, version, _minor(version)) for name, version in sorted(versions.items()) if name in TRIED)
    return [
        f"{name} {version} was never tried with presim ({_range(*TRIED[name])} was): what it does differently may be "
        "missing."
        for name, version, minor in found
        if minor and not _minor(TRIED[name][0]) <= minor <= _minor(TRIED[name][1])
    ]


def _minor(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else ()


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def how_to_install(error: BaseException) -> str:
    """What to do about a module that is missing, as an end to the error's own sentence; empty for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.split(".")[0]
    if module in sys.modules:
        return f" ({module} is installed, in a version without this part)"
    python = Path(sys.executable).name
    name = _DISTRIBUTIONS.get(module, module)
    return f": `{python} -m pip install {name}`, with --no-deps where it asks for torch or nvidia-* packages"
