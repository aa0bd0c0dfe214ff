"""Colours of one picture stay apart, also for readers without red, green or blue cones, and on both papers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from presim.app.view.tracks import KINDS as TRACK_KINDS
from presim.report import palette
from presim.report.content import MEMORY_CATEGORIES
from presim.report.explanation import KINDS as PATH_KINDS
from presim.report.training import ACTIVITIES

RL_PHASES = ("rollout", "reward", "old log-probabilities", "reference log-probabilities", "update", "weight sync")
Floats = NDArray[np.float64]
PICTURES = {
    "memory": (*MEMORY_CATEGORIES, "reserved, unused", "context and libraries"),
    "time": ("compute", "exposed communication", "exposed copies", "waiting for host"),
    "timeline": TRACK_KINDS,
    "critical path": PATH_KINDS,
    "training": ACTIVITIES,
    "reinforcement learning": RL_PHASES,
    "serving": ("weights", "activations", "others", "kv cache"),
}
# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISIONS: dict[str, list[list[float]]] = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
LEAST = 0.08  # distance in OKLab; about 0.02 is just seen


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("picture", PICTURES)
def test_colours_of_a_picture_stay_apart(picture: str, vision: str) -> None:
    seen = {name: oklab(palette.COLOURS[name], VISIONS[vision]) for name in PICTURES[picture]}
    for (name, colour), (other, other_colour) in itertools.combinations(seen.items(), 2):
        assert np.linalg.norm(colour - other_colour) >= LEAST, (name, other)


@pytest.mark.parametrize("paper", ["#ffffff", "#14171a"])
def test_every_colour_stands_out_from_both_papers(paper: str) -> None:
    """By 1.4 to 1, or by its letter, which stands out from the colour by 3 to 1."""
    for name, colour in palette.COLOURS.items():
        light, dark = sorted((palette.luminance(colour), palette.luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 1.4, name


def test_parts_without_a_colour_get_those_that_are_left() -> None:
    classes = palette.css_classes([*MEMORY_CATEGORIES, "graph pool", "free", "NCCL"])
    assert len(set(classes)) == len(classes)
    rules = dict(line.split("{", 1) for line in palette.stylesheet().splitlines() if line.startswith(".part-"))
    drawn = [rules[f".{css_class}"].partition(";")[0] for css_class in classes]
    colours = [palette.COLOURS.get(name, "") for name in MEMORY_CATEGORIES]
    assert len(set(drawn)) == len(drawn)
    spare = [palette.SPARE[int(css_class.rpartition("-")[2])] for css_class in classes if "spare" in css_class]
    assert len(spare) == 2
    assert not set(spare) & set(colours)


def oklab(colour: str, vision: list[list[float]]) -> Floats:
    """Björn Ottosson's OKLab of ``#rrggbb`` as a vision sees it."""
    parts = np.array([int(colour[offset : offset + 2], 16) / 255 for offset in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    opponents = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    lab: Floats = np.array(opponents) @ np.cbrt(np.array(cones) @ np.clip(np.array(vision) @ linear, 0, 1))
    return lab
