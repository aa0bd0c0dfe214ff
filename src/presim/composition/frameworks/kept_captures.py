"""Captures of frameworks' programs, kept in the user's cache by what determines them."""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path

import platformdirs

from presim.capture.setup.capture_version import capture_digest
from presim.composition.frameworks.megatron import FrameworkRun
from presim.files import digest_of
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import device_config


def folder_of(run: FrameworkRun, cluster: Cluster) -> Path:
    """The folder for the capture of a run on a cluster.

    Its name depends on the program and what lies beside it, the arguments and the config, the emulated device, the
    environment's packages, and presim's code that captures.
    """
    parts = (
        *(digest_of(path) for path in sorted(run.script.parent.glob("*.py"))),
        shlex.join(run.arguments),
        digest_of(run.arguments[0]),
        *run.values,
        *run.notes,  # versions of the framework
        f"{cluster.gpu.id} {cluster.nodes} {cluster.gpus_per_node}",
        device_config(cluster.gpu, cluster.gpus_per_node),
        os.environ.get("PYTHONPATH", ""),
        *(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(("NCCL_", "NVTE_"))),
        capture_digest(),
    )
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    return Path(platformdirs.user_cache_dir("presim")) / "framework-captures" / key
