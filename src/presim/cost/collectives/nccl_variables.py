"""NCCL's environment variables in one table: which ones presim honours, and which ones it names as not modelled.

Names: NVIDIA/nccl, docs/userguide/source/env.rst at 5067397c and 0186f08d (2.31, from the section on debugging on), old
names, and some of src/graph/tuning.cc and src/transport. Those without effect concern set-up, logging, checks or names.
"""

from __future__ import annotations

from collections.abc import Iterable

HONOURED = {
    "NCCL_ALGO": "algorithms among which NCCL chooses",
    "NCCL_PROTO": "protocols among which NCCL chooses",
    "NCCL_MIN_NCHANNELS": "least channels of a call",
    "NCCL_MAX_NCHANNELS": "most channels of a call, and their bandwidth",
    "NCCL_MIN_CTAS": "as NCCL_MIN_NCHANNELS",
    "NCCL_MAX_CTAS": "as NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NRINGS": "the old name of NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NRINGS": "the old name of NCCL_MAX_NCHANNELS",
    "NCCL_NVLS_NCHANNELS": "channels of NVLS and NVLSTree",
    "NCCL_NTHREADS": "threads of a channel: its bandwidth with LL and Simple, and when another channel is used",
    "NCCL_BUFFSIZE": "size of a step with Simple: smaller steps synchronise more often",
    "NCCL_NVLS_ENABLE": "0: no reduction in the switch of a node",
    "NCCL_PAT_ENABLE": "0: no PAT",
    "NCCL_COLLNET_ENABLE": "1: reduction by the switches between nodes, where the fabric can",
    "NCCL_P2P_DISABLE": "1: GPUs of a node exchange through host memory",
    "NCCL_P2P_LEVEL": "LOC or 0: as NCCL_P2P_DISABLE; NVL: so without NVLink; other levels change nothing",
    "NCCL_IB_DISABLE": "1: TCP sockets between nodes",
    "NCCL_NET": "Socket: TCP sockets between nodes; other names change nothing",
    "NCCL_GRAPH_FILE": "number and rate of the rings by which NCCL chooses, if the file is on this machine",
    "NCCL_TOPO_FILE": "NVLinks and ports among which NCCL searches rings, if the file is on this machine",
    "NCCL_SOCKET_NTHREADS": "connections of a port with sockets",
    "NCCL_NSOCKS_PERTHREAD": "connections of a port with sockets",
}

UNMODELLED = frozenset((
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS", "NCCL_CGA_CLUSTER_SIZE", "NCCL_COLLNET_NODE_THRESHOLD", "NCCL_CONF_FILE",
    "NCCL_CROSS_NIC", "NCCL_CTA_POLICY", "NCCL_DMABUF_ENABLE", "NCCL_ENV_PLUGIN", "NCCL_GDRCOPY_ENABLE",
    "NCCL_GDRCOPY_FIFO_ENABLE", "NCCL_GDRCOPY_FLUSH_ENABLE", "NCCL_GDRCOPY_SYNC_ENABLE", "NCCL_GRAPH_MIXING_SUPPORT",
    "NCCL_GRAPH_REGISTER", "NCCL_GRAPH_STREAM_ORDERING", "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_AR_THRESHOLD",
    "NCCL_IB_CUDA_SUPPORT", "NCCL_IB_GDR_LEVEL", "NCCL_IB_HCA", "NCCL_IB_MERGE_NICS", "NCCL_IB_OOO_RQ",
    "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IGNORE_CPU_AFFINITY", "NCCL_LAUNCH_MODE", "NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_LEGACY_CUDA_REGISTER",
    "NCCL_LL128_BUFFSIZE", "NCCL_LL128_NTHREADS", "NCCL_LL_BUFFSIZE", "NCCL_LL_THRESHOLD", "NCCL_LOCAL_REGISTER",
    "NCCL_MAX_P2P_NCHANNELS", "NCCL_MEM_SYNC_DOMAIN", "NCCL_MIN_P2P_NCHANNELS", "NCCL_MNNVL_CLIQUE_ID",
    "NCCL_MNNVL_ENABLE", "NCCL_MNNVL_UUID", "NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_NETDEVS_POLICY", "NCCL_NET_GDR_C2C", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_NET_MERGE_LEVEL",
    "NCCL_NET_MERGE_POLICY", "NCCL_NET_OVERHEAD", "NCCL_NET_PLUGIN", "NCCL_NET_SHARED_BUFFERS",
    "NCCL_NET_SHARED_COMMS", "NCCL_NVB_DISABLE", "NCCL_P2P_DIRECT_DISABLE", "NCCL_P2P_LL_THRESHOLD",
    "NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_PXN_LEVEL",
    "NCCL_PROFILER_PLUGIN", "NCCL_PXN_C2C", "NCCL_PXN_DISABLE", "NCCL_SHM_DISABLE", "NCCL_SINGLE_RING_THRESHOLD",
    "NCCL_SYM_GIN_KERNELS_ENABLE", "NCCL_THREAD_THRESHOLDS", "NCCL_TREE_THRESHOLD", "NCCL_TUNER_PLUGIN",
    "NCCL_WIN_ENABLE",
))  # fmt: skip

WITHOUT_EFFECT = frozenset((
    "NCCL_CHECKS_DISABLE", "NCCL_CHECK_MODE", "NCCL_CHECK_POINTERS", "NCCL_COMM_BLOCKING", "NCCL_COMM_ID",
    "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS",
    "NCCL_DEBUG_TIMESTAMP_FORMAT", "NCCL_DEBUG_TIMESTAMP_LEVELS", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE",
    "NCCL_IB_ECE_ENABLE", "NCCL_IB_FIFO_TC", "NCCL_IB_GID_INDEX", "NCCL_IB_RETRY_CNT", "NCCL_IB_RETURN_ASYNC_EVENTS",
    "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_TIMEOUT", "NCCL_IGNORE_COLLNET_MISMATCH",
    "NCCL_IGNORE_NET_MISMATCH", "NCCL_IPC_USE_ABSTRACT_SOCKET", "NCCL_LAUNCH_RACE_FATAL", "NCCL_OOB_NET_ENABLE",
    "NCCL_OOB_NET_IFNAME", "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE", "NCCL_RAS_TIMEOUT_FACTOR", "NCCL_RMA_EAGER_INIT",
    "NCCL_RUNTIME_CONNECT", "NCCL_SET_STACK_SIZE", "NCCL_SET_THREAD_NAME", "NCCL_SOCKET_FAMILY", "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_MAGIC", "NCCL_SOCKET_POLL_TIMEOUT_MSEC", "NCCL_SOCKET_RETRY_CNT", "NCCL_SOCKET_RETRY_SLEEP_MSEC",
    "NCCL_TOPO_DUMP_FILE", "NCCL_UID_STAGGER_RATE", "NCCL_UID_STAGGER_THRESHOLD",
))  # fmt: skip

# PyTorch's variables before 2.2, when they got the prefix TORCH_ (pytorch/pytorch, ProcessGroupNCCL.hpp at v2.1.0).
PYTORCH = frozenset((
    "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING",
))  # fmt: skip


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Names of variables that look like NCCL's, and that neither NCCL documents nor PyTorch reads."""
    return sorted(name for name in environment if name.startswith("NCCL_") and not effect_of(name))


def effect_of(name: str) -> str:
    """What a variable changes in presim, for a table; empty: NCCL documents no such variable."""
    if name in HONOURED:
        return HONOURED[name]
    if name in UNMODELLED:
        return "not modelled: it may change the time of collectives"
    if name in PYTORCH:
        return "a variable of PyTorch before 2.2: without effect on the time of a collective"
    return "without effect on the time of a collective" if name in WITHOUT_EFFECT else ""
