"""Frameworks that a script uses: versions tested with presim, and how to install missing ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

# Oldest and newest minor versions that ran the examples and tests.
TESTED = {
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
# Module -> distribution, where the names differ.
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
    """Versions of the frameworks imported in this process."""
    names = (*TESTED, "triton")
    return {name: str(getattr(sys.modules[name], "__version__", "?")) for name in names if name in sys.modules}


def untested_version_notes(versions: Mapping[str, str]) -> list[str]:
    """A note for each framework whose version is outside the tested range."""
    tested_versions = ((name, version, _minor(version)) for name, version in sorted(versions.items()) if name in TESTED)
    return [
        f"{name} {version} is not tested with presim ({_range(*TESTED[name])} is): new behaviour may not be captured."
        for name, version, minor in tested_versions
        if minor and not _minor(TESTED[name][0]) <= minor <= _minor(TESTED[name][1])
    ]


def _minor(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else ()


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def how_to_install(error: BaseException) -> str:
    """The fix for a missing module, as a suffix of the error message; empty for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.split(".")[0]
    if module in sys.modules:
        return f" ({module} is installed, in a version without this part)"
    python = Path(sys.executable).name
    name = _DISTRIBUTIONS.get(module, module)
    return f": `{python} -m pip install {name}`, with --no-deps if it requires torch or nvidia-* packages"
