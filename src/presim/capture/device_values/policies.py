"""Parse and check the policies for device values that cannot be computed.

``--values KEY=VALUE`` sets them. They are checked here, without torch; the operator hook applies them
(shim/hook/values/policies.cpp).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable

from presim.capture.device_values import drawn_values
from presim.errors import InputError
from presim.system.files import read_text
from presim.trace import routing_policy

OFF = "off"


class DeviceValueOrigin(enum.IntEnum):
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
    def is_local(self) -> bool:
        """Whether a policy supplies it and it depends on a rank's own data, so that it differs between real ranks.

        Gradient norms and overflow checks are the same on all ranks that share gradients.
        """
        return self in (
            DeviceValueOrigin.NUMBER,
            DeviceValueOrigin.LOSS,
            DeviceValueOrigin.SAMPLING,
            DeviceValueOrigin.ROUTING,
        )

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


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError
    return value


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


_CHECKS: dict[str, tuple[Callable[[str], object], str]] = {
    "loss": (_numbers, "a number, or several numbers for consecutive losses: 3.2,2.9,2.5"),
    "gradient_norm": (_number, "a number"),
    "number": (_number, "a number"),
    "routing": (lambda text: _routing(text), routing_policy.FORMS),
    "token": (_natural, "a token id"),
    "eos": (_natural, "the id of the end-of-sequence token"),
    "eos_after": (drawn_values.lengths, drawn_values.LENGTHS),
    "acceptance": (drawn_values.acceptance, drawn_values.ACCEPTANCE),
    "attention_share": (_share, "a share above 0 and at most 1 of the key blocks"),
    "watchdog": (_number, "seconds"),
}
DEFAULTS = {"loss": "2.0", "gradient_norm": "1.0", "number": "0.5", "routing": "balanced", "watchdog": "60"}


def parse(options: Iterable[str]) -> dict[str, str] | None:
    """Parse policies from ``KEY=VALUE`` texts or files of such lines; None for ``off``: compute no values.

    Raises:
        InputError: an unknown key, an invalid value, or a file that cannot be read.
    """
    policies = dict(DEFAULTS)
    texts = list(options)
    if OFF in texts:
        return None
    for option in texts:
        for line in [option] if "=" in option else _lines(option):
            key, _, value = (part.strip() for part in line.partition("="))
            policies[key] = _checked(key, value)
    return policies


def seeded(options: Iterable[str], offset: int) -> str:
    """The random routing policy with its seed increased by ``offset``.

    Raises:
        InputError: the routing policy is not random.
    """
    routing = (parse(options) or {"routing": OFF})["routing"]
    policy = routing_policy.parse(routing, "--values routing=") if routing != OFF else None
    if policy is None or not policy.is_random:
        raise InputError(
            f"--draws needs a random routing policy, but routing is {routing}: add --values routing=uniform, or "
            "routing=zipf:S with a skew S such as 1.0"
        )
    return policy.seeded(policy.seed + offset)


def _lines(path: str) -> list[str]:
    text = read_text(path, "give --values KEY=VALUE, or a readable file of such lines")
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
    policy = routing_policy.parse(text, "--values routing=")
    if policy.kind == "loads":
        return {"routing": "loads", "loads": ",".join(map(str, policy.loads))}
    skew = {"zipf": str(policy.skew)} if policy.kind == "zipf" else {}
    return {"routing": policy.kind, **skew, **({"seed": str(policy.seed)} if policy.is_random else {})}


def format_for_hook(policies: dict[str, str], lowest_rank: int | None = None) -> str:
    """The policies in the hook's format, one per line.

    ``lowest_rank``: each rank gets its own values, and this one the lowest losses and numbers.
    """
    settings = {key: value for key, value in policies.items() if key not in ("routing", "attention_share", "watchdog")}
    if "eos_after" in settings:
        settings["eos_after"] = ",".join(map(str, drawn_values.lengths(settings["eos_after"])))
    if "acceptance" in settings:
        probability, seed = drawn_values.acceptance(settings["acceptance"])
        settings |= {"acceptance": str(probability), "acceptance_seed": str(seed)}
    settings |= {} if lowest_rank is None else {"lowest_rank": str(lowest_rank)}
    return "\n".join(f"{key}={value}" for key, value in (settings | _routing(policies["routing"])).items())
