"""Catalogue ids for GPU names in tables: ``H100 SXM5 80GB``, ``A100-SXM4-80GB``, ``DGX H100``.

And of its node, where a row says more of it than how many GPUs it has.
"""

from __future__ import annotations

import re

from presim.errors import PresimError
from presim.hardware.catalogue import find
from presim.hardware.schema import Gpu
from presim.validation.cases import CannotBuildError, Case

# What a name's parts are; the first that occurs counts, longer ones stand before those that they hold.
_CHIPS = (
    *("gb300", "gb200", "b300", "b200", "gh200", "h200", "h100", "h800", "h20", "a100", "a800", "v100", "p100"),
    *("l40s", "l40", "l4", "t4", "a40", "a30", "a10g", "a10", "rtx-a6000", "a6000", "rtx-6000-ada", "rtx-pro-6000"),
    *("rtx-5090", "rtx-4090", "rtx-3090", "rtx5090", "rtx4090", "rtx3090", "mi300x", "mi355x"),
)
_ANOTHER = r"(?!-(?:ti|super|d|laptop|mobile|max-q)(?![a-z0-9]))"  # behind a name: another card than that
_BOARDS = ("pcie", "nvl", "sxm")
_MEMORY = re.compile(r"(?<![\d.])(\d+)(?:\.\d+)? ?gi?b\b")
_RACKS = re.compile(r"nvl ?72|nvlink\w*|grand teton|dgx|hgx")  # "nvl" in them is not the board
_COUNT = re.compile(r"^\d+ ?x ?(?=[a-z])")  # "8x H100"
_BLUEFIELD = re.compile(r"bf-?3(?!\d)|bluefield")
_BRIDGED = re.compile(r"nvlink|nv-?bridge")
_WITH_BRIDGES = {"pcie4-8": "pcie4-8-bridged", "pcie5-8": "pcie5-8-bridged"}
_FOUR = 4  # cards that the largest bridge joins
_UNSURE = ("class", "not stated", "unknown")
_UNKNOWN = "`presim hardware list` shows what there is; the path of a .toml file in its place describes another"
_KINDS = {
    # chip -> (board, least memory in GB, catalogue's name); the first that fits, most particular first. A table that
    # names no board means SXM where there is one; "" is what only such a table means.
    "h100": (("pcie", 0, "h100-pcie"), ("nvl", 0, "h100-nvl"), ("sxm", 94, "h100-sxm-96gb"), ("sxm", 0, "h100-sxm")),
    "a100": (
        ("pcie", 41, "a100-80gb-pcie"),
        ("pcie", 1, "a100-40gb-pcie"),
        ("pcie", 0, "a100-80gb-pcie"),
        ("sxm", 41, "a100-80gb-sxm"),
        ("sxm", 1, "a100-40gb-sxm"),
        ("sxm", 0, "a100-80gb-sxm"),
    ),
    "a800": (("sxm", 0, "a800-80gb-sxm"),),
    "a6000": (("sxm", 0, "rtx-a6000"),),
    "rtx-a6000": (("sxm", 0, "rtx-a6000"),),
    "v100": (
        ("pcie", 17, "v100-32gb-pcie"),
        ("pcie", 0, "v100-16gb-pcie"),
        ("sxm", 17, "v100-32gb-sxm"),
        ("sxm", 1, "v100-16gb-sxm"),
        ("sxm", 0, "v100-32gb-sxm"),
    ),
    "p100": (("pcie", 0, "p100-pcie"), ("", 0, "p100-pcie")),
    "h200": (("nvl", 0, "h200-nvl"), ("sxm", 0, "h200")),
    "gh200": (("sxm", 400, "gh200"), ("sxm", 97, ""), ("sxm", 0, "gh200")),  # 480 GB is its host's memory
}


def gpu_of(case: Case) -> str:
    """The catalogue id of the case's GPU.

    Raises:
        CannotBuildError: the catalogue does not know it.
    """
    said = case.text("gpu")
    if not said:
        raise CannotBuildError("gpu is not given")
    for name in (said, _named(said)):
        try:
            return find(Gpu, name).id
        except PresimError:
            continue
    raise CannotBuildError(f"the hardware catalogue has no GPU {said!r}: {_UNKNOWN}")


def node_of(case: Case, gpu: str) -> str | None:
    """The catalogue id of the case's node; None: the GPU's usual one.

    L40S in fours with BlueField-3 between them are NVIDIA's OVX servers; others in fours may be virtual machines.
    Cards with NVLink between them have bridges: of four H200 NVL, else of two.
    """
    in_fours = gpu == "l40s" and case.count("gpus_per_node", 0) == 4
    if in_fours and _BLUEFIELD.search(case.text("inter_link").lower()):
        return "ovx-l40s"
    if not _BRIDGED.search(case.text("intra_link").lower()):
        return None
    if gpu == "h200-nvl" and case.count("gpus_per_node", case.count("n_gpus", 1)) <= _FOUR:
        return "h200-nvl-4"
    return _WITH_BRIDGES.get(find(Gpu, gpu).default_node)


def _named(said: str) -> str:
    """The name that its chip, its board and its memory make; as it is where they make none."""
    words = _RACKS.sub(" ", re.sub(r"[ _/,-]+", " ", _COUNT.sub("", said.lower())))
    joined = words.replace(" ", "-")
    chip = next((each for each in _CHIPS if re.search(rf"(?<![a-z0-9]){each}(?![0-9a-z]){_ANOTHER}", joined)), None)
    if chip is None or any(word in words for word in _UNSURE):
        return said
    board = next((each for each in _BOARDS if each in words), "")
    memory = max((int(size) for size in _MEMORY.findall(words)), default=0)
    kinds = _KINDS.get(chip, ((board, 0, chip),))
    boards = (board,) if board else ("", "sxm")
    return next((name for kind, least, name in kinds if kind in boards and memory >= least), said)
