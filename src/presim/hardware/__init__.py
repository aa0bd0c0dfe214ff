"""GPUs, nodes and fabrics: TOML files with units in the keys and a source for each figure."""

from presim.hardware.catalogue import fabric, fabrics, gpu, gpus, node, nodes
from presim.hardware.cluster import Cluster, Fabric, Node
from presim.hardware.cluster_choice import choose_cluster
from presim.hardware.device_config import device_config
from presim.hardware.gpu_schema import FigureSource, Gpu

__all__ = [
    "Cluster",
    "Fabric",
    "FigureSource",
    "Gpu",
    "Node",
    "choose_cluster",
    "device_config",
    "fabric",
    "fabrics",
    "gpu",
    "gpus",
    "node",
    "nodes",
]  # fmt: skip
