"""The cluster that a form describes, as a drawing and in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from presim.cli.declared import Values, split
from presim.errors import InputError
from presim.hardware.cluster import Cluster
from presim.hardware.cluster_choice import choose_cluster
from presim.report.drawings.cluster_drawing import cluster_facts, cluster_svg

_COUNTS = ("nodes", "gpus_per_node", "world_size")
_PARTS = ("gpu", "node", "fabric")
_PART_USED = "A whole node of this GPU's usual type, of which the job may use a part."


class ClusterPicture(msgspec.Struct, frozen=True):
    """Markup of an SVG whose texts are escaped, and the cluster's facts; both empty where no cluster is described."""

    markup: str = ""
    facts: list[str] = []


def picture_of(values: Values, folder: Path) -> ClusterPicture:
    """The picture of the cluster of a form's values; ``folder``: of the files that they name."""
    texts = {name: str(value).strip() for name, value in values.items() if str(value).strip()}
    texts.setdefault("gpu", (split(texts.get("gpus", "")) or [""])[0])  # a deployment is sized for several GPUs
    if not texts["gpu"] and not texts.get("cluster"):
        return ClusterPicture()
    try:
        cluster = _cluster(texts, folder)
    except (InputError, ValueError):  # beside its field stands what is wrong with it
        return ClusterPicture()
    is_whole_node = not texts.get("cluster") and not any(name in texts for name in _COUNTS)
    use = [_PART_USED] if is_whole_node else []
    return ClusterPicture(str(cluster_svg(cluster)), [*use, *cluster_facts(cluster)])


def _cluster(texts: dict[str, str], folder: Path) -> Cluster:
    """The cluster; without numbers of nodes, a whole node of the GPU's usual type, of which engines use a part."""
    parts: dict[str, Any] = {name: _located(texts[name], folder) for name in _PARTS if texts.get(name)}
    counts: dict[str, Any] = {name: int(texts[name]) for name in _COUNTS if name in texts}
    file = folder / texts["cluster"] if texts.get("cluster") else None
    described = choose_cluster(**parts, **counts, cluster=file)
    return described if counts or file else choose_cluster(**parts, nodes=1, gpus_per_node=described.node.gpus)


def _located(name: str, folder: Path) -> str:
    """The id of a part, or the path of its file in the folder."""
    return str(folder / name) if name.endswith(".toml") else name
