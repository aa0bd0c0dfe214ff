"""Colours of the parts of bars and timelines, the same in every page; a letter or a hatching tells parts apart, too.

Twelve colours that stay apart for readers without red, green or blue cones: we searched OKLCH for the set with the
largest smallest distance under normal vision and Machado's (2009) simulations of protanopia, deuteranopia and
tritanopia. ``tests/unit/report/test_palette.py`` computes the distances.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_BLUE, _LIGHT_BLUE, _INDIGO, _NAVY, _MAUVE = "#5686f2", "#94b1eb", "#4646cb", "#3b4277", "#726ca6"
_VERMILION, _PLUM, _BROWN, _SAND, _PINK = "#d55e00", "#95525b", "#6a3a06", "#bab28e", "#f5cad6"
_LIME, _GREY = "#98e448", "#8b9097"
COLOURS = {
    # device memory
    "parameter": _BLUE,
    "gradient": _PLUM,
    "optimizer state": _INDIGO,
    "activation": _LIME,
    "temporary": _SAND,
    "input": _LIGHT_BLUE,
    "buffer": _BROWN,
    "communication": _VERMILION,
    "other": _GREY,
    "reserved, unused": _PINK,
    "context and libraries": _NAVY,
    "other processes": _MAUVE,
    # time of a step, and the critical path
    "compute": _BLUE,
    "exposed communication": _VERMILION,
    "exposed copies": _SAND,
    "waiting for host": _PLUM,
    "copy": _SAND,
    "host": _PLUM,
    "launch latency": _MAUVE,
    "synchronisation": _BROWN,
    "device busy": _GREY,
    # timelines
    "forward": _BLUE,
    "recompute": _LIGHT_BLUE,
    "backward": _INDIGO,
    "optimizer": _LIME,
    # a whole training
    "work": _BLUE,
    "checkpoints": _LIGHT_BLUE,
    "lost work": _VERMILION,
    "restarts": _PLUM,
    "waiting for repairs": _SAND,
    "missing replicas": _GREY,
    # a step of reinforcement learning
    "rollout": _LIME,
    "reward": _SAND,
    "old log-probabilities": _LIGHT_BLUE,
    "reference log-probabilities": _MAUVE,
    "update": _BLUE,
    "weight sync": _VERMILION,
    # a request to a served model
    "queued": _PLUM,
    "prefill": _BLUE,
    "decode": _LIME,
    # memory of a served model
    "weights": _BLUE,
    "activations": _LIME,
    "others": _GREY,
    "kv cache": _INDIGO,
}
EMPTY = (  # drawn as paper with hatching
    "free", "idle", "waiting for rollouts", "waiting for weights", "waiting for scores", "waiting for updates",
)  # fmt: skip
EMPTY_COLOUR = "#e4e6e8"  # where there is no hatching
HATCHED = ("reserved, unused", "communication", "copy", *EMPTY)
SPARE = tuple(dict.fromkeys(COLOURS.values()))
_HATCHING = "repeating-linear-gradient(45deg,transparent 0 4px,var(--hatch) 4px 5px)"


def css_classes(names: Iterable[str]) -> list[str]:
    """The CSS classes of the parts of one picture; parts without a colour of their own get those that are left."""
    return [
        f"part-{_slug(name)}" if spare is None else f"part-spare-{spare}" for name, spare in _with_spare_colours(names)
    ]


def colours(names: Iterable[str]) -> list[str]:
    """The same colours as ``#rrggbb``, for pictures without a style sheet; what is empty is light grey."""
    return [
        SPARE[spare] if spare is not None else COLOURS.get(name, EMPTY_COLOUR)
        for name, spare in _with_spare_colours(names)
    ]


def _with_spare_colours(names: Iterable[str]) -> list[tuple[str, int | None]]:
    """Names in small letters, each with the index of a spare colour where it has none of its own."""
    parts = [name.lower() for name in names]
    used = {COLOURS[name] for name in parts if name in COLOURS}
    spare = iter([index for index, colour in enumerate(SPARE) if colour not in used])
    return [(name, None if name in COLOURS or name in EMPTY else next(spare, 0)) for name in parts]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name)


def stylesheet() -> str:
    """CSS of all parts: a variable with the colour, and a class with the colour, its ink and its hatching."""
    colours = {_slug(name): colour for name, colour in COLOURS.items()}
    colours |= {f"spare-{index}": colour for index, colour in enumerate(SPARE)}
    lines = [":root{--hatch:#60646c;" + "".join(f"--part-{slug}:{colour};" for slug, colour in colours.items()) + "}"]
    lines.append("@media (prefers-color-scheme: dark){:root{--hatch:#9ba1a6}}")
    lines += [
        f".part-{slug}{{background-color:var(--part-{slug});color:{_ink(colour)}}}" for slug, colour in colours.items()
    ]
    lines += [
        f".part-{_slug(name)}{{background-color:var(--paper);color:var(--ink);box-shadow:inset 0 0 0 1px var(--hatch)}}"
        for name in EMPTY
    ]
    lines.append(",".join(f".part-{_slug(name)}" for name in HATCHED) + f"{{background-image:{_HATCHING}}}")
    return "\n".join(lines) + "\n"


def _ink(colour: str) -> str:
    """Black or white, whichever stands out more from a colour."""
    return "#000" if luminance(colour) > 0.179 else "#fff"  # where the contrasts with both are equal


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``, as WCAG defines it; 0 to 1."""
    parts = [int(colour[offset : offset + 2], 16) / 255 for offset in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
