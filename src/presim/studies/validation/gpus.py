"""Catalogue ids of GPUs and nodes for names in tables: ``H100 SXM5 80GB``, ``A100-SXM4-80GB``, ``DGX H100``."""

from __future__ import annotations

import re

from presim.errors import PresimError
from presim.hardware.catalogue import find
from presim.hardware.gpu_schema import Gpu
from presim.studies.validation.cases import CannotBuildError, Case

# Parts of a GPU's name. The first match counts, so longer names precede those that they contain.
_CHIPS = (
    *("gb300", "gb200", "b300", "b200", "gh200", "h200", "h100", "h800", "h20", "a100", "a800", "v100", "p100"),
    *("l40s", "l40", "l4", "t4", "a40", "a30", "a10g", "a10", "rtx-a6000", "a6000", "rtx-6000-ada", "rtx-pro-6000"),
    *("rtx-5090", "rtx-4090", "rtx-3090", "rtx5090", "rtx4090", "rtx3090", "mi300x", "mi355x"),
)
_ANOTHER = r"(?!-(?:ti|super|d|laptop|mobile|max-q)(?![a-z0-9]))"  # suffixes of other cards
_BOARDS = ("pcie", "nvl", "sxm")
_MEMORY = re.compile(r"(?<![\d.])(\d+)(?:\.\d+)? ?gi?b\b")
_RACKS = re.compile(r"nvl ?72|nvlink\w*|grand teton|dgx|hgx")  # their "nvl" does not denote the board
_COUNT = re.compile(r"^\d+ ?x ?(?=[a-z])")  # "8x H100"
_BLUEFIELD = re.compile(r"bf-?3(?!\d)|bluefield")
_BRIDGED = re.compile(r"nvlink|nv-?bridge")
_WITH_BRIDGES = {"pcie4-8": "pcie4-8-bridged", "pcie5-8": "pcie5-8-bridged"}
_FOUR = 4  # cards on the largest bridge
_UNSURE = ("class", "not stated", "unknown")
_UNKNOWN = "`presim hardware list` shows all; the path of a .toml file describes another one"
_KINDS = {
    # chip -> (board, minimum memory in GB, catalogue id). The first match counts. A name without a board means SXM if
    # there is an SXM entry; an entry with board "" matches only such names.
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
    "gh200": (("sxm", 400, "gh200"), ("sxm", 97, ""), ("sxm", 0, "gh200")),  # 480 GB is the host's memory
}


def gpu_of(case: Case) -> str:
    """The catalogue id of the case's GPU.

    Raises:
        CannotBuildError: the catalogue does not have it.
    """
    name = case.text("gpu")
    if not name:
        raise CannotBuildError("gpu is empty")
    for candidate in (name, _catalogue_id(name)):
        try:
            return find(Gpu, candidate).id
        except PresimError:
            continue
    raise CannotBuildError(f"the hardware catalogue has no GPU {name!r}; {_UNKNOWN}")


def node_of(case: Case, gpu: str) -> str | None:
    """The catalogue id of the case's node; None: the GPU's default node.

    Four L40S with BlueField-3 are an NVIDIA OVX server; other nodes of four L40S may be virtual machines. PCIe cards
    with NVLink have bridges: of four cards for H200 NVL, of two for others.
    """
    in_fours = gpu == "l40s" and case.count("gpus_per_node", 0) == 4
    if in_fours and _BLUEFIELD.search(case.text("inter_link").lower()):
        return "ovx-l40s"
    if not _BRIDGED.search(case.text("intra_link").lower()):
        return None
    if gpu == "h200-nvl" and case.count("gpus_per_node", case.count("n_gpus", 1)) <= _FOUR:
        return "h200-nvl-4"
    return _WITH_BRIDGES.get(find(Gpu, gpu).default_node)


def _catalogue_id(text: str) -> str:
    """The catalogue id by chip, board and memory in a name; the unchanged name if there is none."""
    words = _RACKS.sub(" ", re.sub(r"[ _/,-]+", " ", _COUNT.sub("", text.lower())))
    joined = words.replace(" ", "-")
    chip = next((name for name in _CHIPS if re.search(rf"(?<![a-z0-9]){name}(?![0-9a-z]){_ANOTHER}", joined)), None)
    if chip is None or any(word in words for word in _UNSURE):
        return text
    board = next((name for name in _BOARDS if name in words), "")
    memory = max((int(size) for size in _MEMORY.findall(words)), default=0)
    kinds = _KINDS.get(chip, ((board, 0, chip),))
    boards = (board,) if board else ("", "sxm")
    return next((name for kind, least, name in kinds if kind in boards and memory >= least), text)
