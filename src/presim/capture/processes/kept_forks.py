"""Processes to fork ranks from that are kept from one capture to the next: importing takes longer than many a step."""

from __future__ import annotations

import hashlib
from pathlib import Path

from presim.capture.processes.forks import RECIPE, Forks
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import device_config

MOST = 3  # at a time; each holds some 500 MB


class KeptForks:
    """One for each script and emulated device, as modules look at the device when they are imported.

    The one that was not asked for longest ends when there are too many.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Forks] = {}  # the latest asked for is last

    def of(self, script: Path, cluster: Cluster) -> Forks:
        """For ranks of this script on GPUs of this cluster."""
        key = _digest(script), device_config(cluster.gpu, cluster.gpus_per_node)
        forks = self._kept.pop(key) if key in self._kept else Forks((RECIPE, str(script)))
        self._kept[key] = forks
        if len(self._kept) > MOST:
            self._end_first()
        return forks

    def close(self) -> None:
        """End all of them."""
        while self._kept:
            self._end_first()

    def _end_first(self) -> None:
        self._kept.pop(next(iter(self._kept))).close()


def _digest(script: Path) -> str:
    """Of the script and the files beside it, which it may import."""
    digest = hashlib.sha256(str(script.resolve()).encode())
    for path in sorted({script, *script.parent.glob("*.py")}):
        digest.update(path.read_bytes())
    return digest.hexdigest()
