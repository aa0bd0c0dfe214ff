"""Parse and check the policies for device values that cannot be computed.

``--values KEY=VALUE`` sets them. They are checked here, without torch; the operator hook applies them
(shim/hook/values/policies.cpp).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from presim.errors import InputError

OFF = "off"


class Origin(enum.IntEnum):
    """Where a value comes from; a value computed from several has the greatest. Must match shim/core/values.h."""

    UNKNOWN = 0
    COMPUTED = 1  # by the program itself, on the CPU
    ZERO = 2  # unknown integers and booleans
    NUMBER = 3  # unknown floats
    FINITE = 4  # overflow checks: isfinite, all, a gradient scaler's check
    GRADIENT_NORM = 5
    LOSS = 6
    SAMPLING = 7
    ROUTING = 8

    @property
    def label(self) -> str:
        """The name printed in results."""
        return self.name.lower().replace("_", " ")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _numbers(text: str) -> list[float]:
    return [_number(part) for part in text.split(",")]


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


_CHECKS: dict[str, tuple[Callable[[str], object], str]] = {
    "loss": (_numbers, "a number, or several numbers for consecutive losses: 3.2,2.9,2.5"),
    "gradient_norm": (_number, "a number"),
    "number": (_number, "a number"),
    "routing": (lambda text: _routing(text), "balanced, uniform, uniform:SEED, zipf:S, zipf:S:SEED or file:PATH"),
    "token": (_natural, "a token id"),
    "eos": (_natural, "the id of the end-of-sequence token"),
    "eos_after": (_natural, "the number of tokens sampled before the end-of-sequence token"),
    "watchdog": (_number, "seconds"),
}
DEFAULTS = {"loss": "2.0", "gradient_norm": "1.0", "number": "0.5", "routing": "balanced", "watchdog": "60"}


def parse(options: Iterable[str]) -> dict[str, str] | None:
    """Parse policies from ``KEY=VALUE`` texts or files of such lines; None for ``off``: compute no values.

    Raises:
        InputError: an unknown key, an invalid value, or a file that cannot be read.
    """
    chosen = dict(DEFAULTS)
    texts = list(options)
    if OFF in texts:
        return None
    for option in texts:
        for line in [option] if "=" in option else _lines(option):
            key, _, value = (part.strip() for part in line.partition("="))
            chosen[key] = _checked(key, value)
    return chosen


def seeded(options: Iterable[str], offset: int) -> str:
    """The random routing policy with its seed increased by ``offset``.

    Raises:
        InputError: the routing policy is not random.
    """
    routing = (parse(options) or {"routing": OFF})["routing"]
    settings = _routing(routing) if routing != OFF else {}
    if "seed" not in settings:
        raise InputError(
            f"--draws needs a random routing policy, but routing is {routing}: add --values routing=uniform, or "
            "routing=zipf:S with a skew S such as 1.0"
        )
    kind = f"zipf:{settings['zipf']}" if "zipf" in settings else settings["routing"]
    return f"{kind}:{int(settings['seed']) + offset}"


def _lines(path: str) -> list[str]:
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--values {path}: neither KEY=VALUE nor a readable file ({error})") from error
    return [line for raw in text.splitlines() if (line := raw.split("#")[0].strip())]


def _checked(key: str, value: str) -> str:
    if key not in _CHECKS:
        raise InputError(f"--values {key}={value}: unknown key {key!r}; use one of {', '.join(_CHECKS)}, or `off`")
    check, expected = _CHECKS[key]
    try:
        check(value)
    except ValueError as error:
        raise InputError(f"--values {key}={value}: expected {expected}") from error
    return value


def _routing(text: str) -> dict[str, str]:
    """The hook's settings for a routing policy."""
    kind, *rest = text.split(":", 1) if text.startswith("file:") else text.split(":")
    if kind == "balanced" and not rest:
        return {"routing": "balanced"}
    if kind == "uniform" and len(rest) <= 1:
        return {"routing": "uniform", "seed": str(_natural(rest[0] if rest else "0"))}
    if kind == "zipf" and 1 <= len(rest) <= 2:
        return {"routing": "zipf", "zipf": str(_number(rest[0])), "seed": str(_natural(rest[1] if rest[1:] else "0"))}
    if kind == "file" and rest and rest[0]:
        return {"routing": "loads", "loads": ",".join(map(str, _loads(rest[0])))}
    raise ValueError(text)


def _loads(path: str) -> list[float]:
    """Read a file of expert loads: numbers separated by blanks, commas or newlines."""
    try:
        words = Path(path).read_text().replace(",", " ").split()
        loads = [_number(word) for word in words]
    except (OSError, ValueError) as error:
        raise InputError(
            f"--values routing=file:{path}: expected a file with one number per expert ({error})"
        ) from error
    if not loads or min(loads) < 0 or sum(loads) == 0:
        raise InputError(f"--values routing=file:{path}: loads must not be negative, nor all zero; got {loads[:8]}")
    return loads


def for_hook(chosen: dict[str, str]) -> str:
    """The policies in the hook's format, one per line."""
    settings = {key: value for key, value in chosen.items() if key not in ("routing", "watchdog")}
    return "\n".join(f"{key}={value}" for key, value in (settings | _routing(chosen["routing"])).items())
