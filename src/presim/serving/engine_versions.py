"""Versions of engines: which one prices and schedules are of, and what an older one changes."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.system.files import shortened

if TYPE_CHECKING:
    from presim.serving.serving_plan import Kernels

NEWEST = {"vllm": "0.33", "sglang": "0.5.23", "trtllm": "1.0"}  # whose schedulers and defaults presim has
_TITLES: dict[Kernels, str] = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
# The first version with the core that is simulated: vLLM's V1 is the default from 0.8 on (release notes of 0.8.0).
_CORES = {"vllm": (0, 8)}
_ASYNCHRONOUS = {"vllm": (0, 14)}  # from which on steps are scheduled while others run, by default
# Published runs of vLLM of 2024 take 1.5 times as long as predicted; the 80 % interval of this width reaches 1.58.
OLD_UNCERTAINTY = 0.45


@dataclasses.dataclass(frozen=True)
class EngineRelease:
    """An engine, and its version."""

    name: Kernels
    version: str | None = None  # None: the newest that is known

    @property
    def text(self) -> str:
        """In words, with a version that was named."""
        return f"{_TITLES[self.name]} {self.version}" if self.version else _TITLES[self.name]


def release_of(word: str) -> EngineRelease:
    """Parse ``vllm``, ``sglang`` or ``trtllm``, the first two also with a version, as ``vllm@0.19``.

    Raises:
        InputError: it is none.
    """
    name, has_version, version = word.partition("@")
    if has_version:
        numbers_of(version)
    if has_version and name == "trtllm":
        raise InputError(
            f"kernels and defaults are those of TensorRT-LLM {NEWEST[name]}: leave out @{shortened(version)}"
        )
    for engine in _TITLES:
        if name == engine:
            return EngineRelease(engine, version or None)
    raise InputError(
        f"--engine is vllm, sglang or trtllm, or a version as vllm@0.19, not {shortened(word)!r}; correct it"
    )


def numbers_of(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 0.6.3.post1 is 0, 6, 3.

    Raises:
        InputError: it does not begin with a number.
    """
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if match is None or len(version) > 40:
        raise InputError(f"--engine-version is a version such as 0.6.3, not {shortened(version)!r}; correct it")
    return tuple(int(number) for number in match[1].split("."))


def has_other_core(kernels: str, version: str | None) -> bool:
    """Whether an engine is older than any whose core is simulated."""
    return version is not None and kernels in _CORES and numbers_of(version) < _CORES[kernels]


def is_asynchronous(kernels: str, version: str | None) -> bool:
    """Whether steps are scheduled while others run, unless an option says otherwise."""
    return version is None or kernels not in _ASYNCHRONOUS or numbers_of(version) >= _ASYNCHRONOUS[kernels]
