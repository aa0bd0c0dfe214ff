"""Captures of frameworks' programs, kept in the user's cache by what determines them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import platformdirs

from presim.capture.setup.capture_version import capture_digest
from presim.composition.frameworks.launched import LaunchedRun
from presim.composition.frameworks.megatron import FrameworkRun
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import device_config


def cache_folder() -> Path:
    """The folder of all kept captures."""
    return Path(platformdirs.user_cache_dir("presim")) / "framework-captures"


def folder_of(run: FrameworkRun | LaunchedRun, cluster: Cluster) -> Path:
    """The folder for the capture of a run on a cluster.

    Its name depends on the program and what lies beside it, the arguments and the config, the versions of packages, the
    emulated device, the environment's packages, and presim's code that captures.
    """
    parts = (
        *run.determinants,
        f"{cluster.gpu.id} {cluster.nodes} {cluster.gpus_per_node}",
        device_config(cluster.gpu, cluster.gpus_per_node),
        os.environ.get("PYTHONPATH", ""),
        *(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(("NCCL_", "NVTE_"))),
        capture_digest(),
    )
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    return cache_folder() / key
