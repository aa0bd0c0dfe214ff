"""Keep zygotes from one capture to the next, because importing takes longer than many a step."""

from __future__ import annotations

import hashlib
from pathlib import Path

from presim.capture.processes.forks import RECIPE, Forks
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import device_config

MAX_KEPT = 3  # kept at once; each holds about 500 MB


class KeptForks:
    """One zygote for each script and emulated device, because modules read device properties when they are imported.

    Beyond the limit, the least recently used one ends.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Forks] = {}  # least recently used first

    def of(self, script: Path, cluster: Cluster) -> Forks:
        """The zygote for ranks of this script on GPUs of this cluster."""
        key = _digest(script), device_config(cluster.gpu, cluster.gpus_per_node)
        forks = self._kept.pop(key) if key in self._kept else Forks((RECIPE, str(script)))
        self._kept[key] = forks
        if len(self._kept) > MAX_KEPT:
            self._end_first()
        return forks

    def close(self) -> None:
        """End all zygotes."""
        while self._kept:
            self._end_first()

    def _end_first(self) -> None:
        self._kept.pop(next(iter(self._kept))).close()


def _digest(script: Path) -> str:
    """Digest of the script and the files beside it, which it may import."""
    digest = hashlib.sha256(str(script.resolve()).encode())
    for path in sorted({script, *script.parent.glob("*.py")}):
        digest.update(path.read_bytes())
    return digest.hexdigest()
