"""The figures of a GPU, each in one unit and with its source.

In memory, sizes are bytes, rates bytes/s or FLOP/s, clocks Hz, times ns. In TOML files the unit is in the key
(``memory_bandwidth_GBps``). Each field defines its key and the factor between both units.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import msgspec

from presim.system.files.field_docs import doc
from presim.units import GIB, KIB, MIB

MHZ, GBPS, TFLOPS, US = 10**6, 1e9, 1e12, 1000
GPU, ACCELERATOR = "gpu", "accelerator"
GPU_VENDORS = ("nvidia", "amd")
# The largest value of a figure in the unit of its key, by the unit; far beyond what exists. Without a unit: counts.
_MOST = {1: 1 << 20, KIB: 1 << 20, MIB: 1 << 30, GIB: 1 << 20, MHZ: 1 << 20, GBPS: 10**6, TFLOPS: 10**9, US: 10**9}


def figure(key: str, scale: float, text: str, least: float = 0, only: str = "") -> msgspec.Meta:
    """A quantity with a source. ``key``: its name in TOML; ``value * scale``: the value in memory.

    An integer ``scale`` makes the value in memory an integer. ``only``: GPU if files of GPUs must have it and others
    need not; ACCELERATOR if files of GPUs cannot have it.
    """
    extra = {"key": key, "scale": scale, "figure": True, "only": only, "least": least}
    return msgspec.Meta(ge=0 if only else least, le=_MOST[scale] * scale, description=text, extra=extra)


def _of_gpus(text: str) -> msgspec.Meta:
    """The description of a word that files of GPUs must have, and others need not."""
    return msgspec.Meta(description=text, extra={"only": GPU})


class FigureSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Source of figures: a document, a measurement, a derivation or an estimate."""

    text: str
    keys: tuple[str, ...]  # TOML keys of the figures it backs
    estimate: bool = False  # neither published nor measured for this part


class Sourced(msgspec.Struct, frozen=True):
    """Fields that all parts of the catalogue share."""

    id: Annotated[str, doc("Name on the command line, e.g. h100-sxm.")]
    name: Annotated[str, doc("Full name; of a GPU, the result of torch.cuda.get_device_name.")]
    sources: Annotated[tuple[FigureSource, ...], doc("Source of each figure.")]

    def source(self, key: str) -> FigureSource | None:
        """The source of one figure by its TOML key; None if the file has none."""
        return next((source for source in self.sources if key in source.keys), None)


class Gpu(Sourced, frozen=True, kw_only=True):
    """One model of GPU, or of accelerator that is no GPU: any vendor but NVIDIA and AMD.

    Peaks are dense, with the accumulation that training uses (float32 for 16 bits and fewer); 0: no such unit. What a
    GPU's file must say and an accelerator's need not is 0 where it is not known.
    """

    vendor: Annotated[
        str, doc("nvidia or amd: a GPU; any other: an accelerator that is no GPU, which is not emulated.")
    ]
    architecture: Annotated[str, _of_gpus("Generation, e.g. hopper.")] = ""
    default_node: Annotated[str, _of_gpus("Id of the default node type.")] = ""
    notes: Annotated[str, doc("What to know before trusting the figures.")] = ""

    compute_major: Annotated[
        int, figure("compute_major", 1, "Compute capability, major (AMD: gfx family).", 1, GPU)
    ] = 0
    compute_minor: Annotated[int, figure("compute_minor", 1, "Compute capability, minor.", 0, GPU)] = 0
    sm_count: Annotated[int, figure("sm_count", 1, "Streaming multiprocessors, or AMD's compute units.", 1, GPU)] = 0
    sm_clock_hz: Annotated[int, figure("sm_clock_MHz", MHZ, "Highest SM clock, as the driver reports it.", 1, GPU)] = 0

    nominal_bytes: Annotated[int, figure("nominal_memory_GB", 10**9, "Nominal memory of the card.", 1)]
    memory_bytes: Annotated[int, figure("memory_MiB", MIB, "Total memory as cudaMemGetInfo reports it.", 1, GPU)] = 0
    context_bytes: Annotated[int, figure("context_MiB", MIB, "Memory that a process's context uses.", 0, GPU)] = 0
    memory_bytes_per_s: Annotated[float, figure("memory_bandwidth_GBps", GBPS, "Peak memory bandwidth.", 1)]
    memory_clock_hz: Annotated[int, figure("memory_clock_MHz", MHZ, "Memory clock; two transfers a clock.", 1, GPU)] = 0
    memory_bus_bits: Annotated[int, figure("memory_bus_bits", 1, "Width of the memory bus.", 1, GPU)] = 0
    l2_bytes: Annotated[int, figure("l2_MiB", MIB, "L2 cache, all slices.", 1, GPU)] = 0

    shared_per_sm_bytes: Annotated[int, figure("shared_per_sm_KiB", KIB, "Shared memory of one SM.", 1, GPU)] = 0
    shared_per_block_bytes: Annotated[
        int, figure("shared_per_block_KiB", KIB, "Shared memory of one block.", 1, GPU)
    ] = 0
    registers_per_sm: Annotated[int, figure("registers_per_sm", 1, "32-bit registers of one SM.", 1, GPU)] = 0
    threads_per_sm: Annotated[int, figure("threads_per_sm", 1, "Threads resident on one SM.", 1, GPU)] = 0

    power_w: Annotated[float, figure("power_W", 1.0, "Board power limit as shipped.", 1, GPU)] = 0
    nvlink_bytes_per_s: Annotated[
        float, figure("nvlink_GBps", GBPS, "All NVLink or xGMI links, one way; 0: none.", 0, GPU)
    ] = 0
    pcie_generation: Annotated[int, figure("pcie_generation", 1, "PCI Express generation.", 1, GPU)] = 0
    pcie_lanes: Annotated[int, figure("pcie_lanes", 1, "PCI Express lanes.", 1, GPU)] = 0
    on_chip_bytes: Annotated[int, figure("on_chip_MiB", MIB, "Memory on the chip, all cores.", 0, ACCELERATOR)] = 0
    link_ports: Annotated[int, figure("link_ports", 1, "Ports to other accelerators.", 0, ACCELERATOR)] = 0
    link_port_bytes_per_s: Annotated[
        float, figure("link_port_GBps", GBPS, "One such port, one direction.", 0, ACCELERATOR)
    ] = 0.0
    launch_ns: Annotated[int, figure("launch_us", US, "Time to start one kernel; 0: not known.", 0, ACCELERATOR)] = 0
    matrix_side: Annotated[
        int,
        figure("matrix_side", 1, "Rows and columns of a matrix unit, to which operands are padded.", 0, ACCELERATOR),
    ] = 0
    matrix_share: Annotated[
        float, figure("matrix_share", 1.0, "What large products reach of the peak; 0: not known.", 0, ACCELERATOR)
    ] = 0.0
    memory_share: Annotated[
        float, figure("memory_share", 1.0, "What large copies reach of the bandwidth; 0: not known.", 0, ACCELERATOR)
    ] = 0.0
    share_spread: Annotated[
        float, figure("share_spread", 1.0, "Relative error of prices by both shares; 0: a tenth.", 0, ACCELERATOR)
    ] = 0.0
    c2c_bytes_per_s: Annotated[
        float, figure("c2c_GBps", GBPS, "Chip-to-chip link to the host's memory, one direction; 0: over PCIe.")
    ] = 0.0

    fp64_flops: Annotated[float, figure("fp64_TFLOPs", TFLOPS, "Outside matrix units.")] = 0.0
    fp64_tensor_flops: Annotated[float, figure("fp64_tensor_TFLOPs", TFLOPS, "Matrix units.")] = 0.0
    fp32_flops: Annotated[float, figure("fp32_TFLOPs", TFLOPS, "Outside matrix units.")] = 0.0
    bf16_vector_flops: Annotated[
        float, figure("bf16_vector_TFLOPs", TFLOPS, "Outside matrix units; 0: as fp32.", 0, ACCELERATOR)
    ] = 0.0
    tf32_flops: Annotated[float, figure("tf32_dense_TFLOPs", TFLOPS, "Matrix units.")] = 0.0
    fp16_flops: Annotated[float, figure("fp16_dense_TFLOPs", TFLOPS, "Matrix units.")] = 0.0
    bf16_flops: Annotated[float, figure("bf16_dense_TFLOPs", TFLOPS, "Matrix units.")] = 0.0
    fp8_flops: Annotated[float, figure("fp8_dense_TFLOPs", TFLOPS, "Matrix units.")] = 0.0
    int8_flops: Annotated[float, figure("int8_dense_TOPs", TFLOPS, "Matrix units, operations.")] = 0.0
    fp4_flops: Annotated[float, figure("fp4_dense_TFLOPs", TFLOPS, "Matrix units.")] = 0.0

    def __post_init__(self) -> None:
        """Fill in what an accelerator's file leaves to be derived.

        Raises:
            ValueError: the vendor is a misspelt one of GPUs, no matrix unit has a peak, a share is above 1, or
                ports lack a rate.
        """
        if self.is_gpu:
            return
        if nearest_vendors := difflib.get_close_matches(self.vendor.strip().lower(), GPU_VENDORS, 1, 0.75):
            raise ValueError(f"vendor = {self.vendor!r}: did you mean {nearest_vendors[0]!r}")
        if not any(self.peak(kind) for kind in ("bf16", "fp16", "fp8", "int8", "fp32")):
            raise ValueError("no peak of matrix products is given, e.g. bf16_dense_TFLOPs")
        for key, share in (("matrix_share", self.matrix_share), ("memory_share", self.memory_share)):
            if share > 1:
                raise ValueError(f"{key} is {share:g}, but nothing reaches more than its peak: a share is at most 1")
        if bool(self.link_ports) != bool(self.link_port_bytes_per_s):
            raise ValueError("link_ports and link_port_GBps need each other, and one of them is 0 or not given")
        derived: dict[str, Any] = {
            "architecture": self.vendor,
            "default_node": "accelerators-8",
            "memory_bytes": self.nominal_bytes,
            "l2_bytes": self.on_chip_bytes,
            "nvlink_bytes_per_s": self.link_ports * self.link_port_bytes_per_s,
            "pcie_generation": _USUAL_PCIE[0],
            "pcie_lanes": _USUAL_PCIE[1],
        }
        for field, value in derived.items():
            if not getattr(self, field):
                msgspec.structs.force_setattr(self, field, value)

    @property
    def is_gpu(self) -> bool:
        """Whether it runs CUDA or ROCm."""
        return self.vendor in GPU_VENDORS

    def peak(self, dtype: str) -> float | None:
        """Dense peak of matrix products in FLOP/s, by PyTorch's name of the type, ``tf32`` or the field's prefix.

        None if the GPU has no unit for the type (bfloat16 on Volta); the caller chooses a fallback.
        """
        if dtype in ("float64", "fp64"):
            return self.fp64_tensor_flops or self.fp64_flops or None
        return getattr(self, f"{_PREFIX.get(dtype) or _narrow(dtype)}_flops", None) or None

    @property
    def host_bytes_per_s(self) -> float:
        """Bandwidth between the GPU and its host, one direction: chip-to-chip if there is such a link, else PCIe."""
        return self.c2c_bytes_per_s or pcie_bytes_per_s(self.pcie_generation, self.pcie_lanes)


DERIVED = ("memory_MiB", "l2_MiB", "nvlink_GBps", "pcie_generation", "pcie_lanes")  # of an accelerator: in other keys
_USUAL_PCIE = (5, 16)  # generation and lanes of an accelerator whose file names none: assumed
_PREFIX = {"float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "uint8": "int8"}


def _narrow(dtype: str) -> str:
    """Field prefix of a data type: float8_e4m3fn is fp8, float4_e2m1fn_x2 is fp4, others are unchanged."""
    return f"fp{dtype[5]}" if dtype.startswith(("float8", "float4")) else dtype


# GT/s per lane and the share of it that carries bytes: 128b/130b coding, from generation 6 on 236 of a flit's 256.
# PCI Express Base Specification, revisions 3.0 to 6.0.
_PCIE = {3: (8, 128 / 130), 4: (16, 128 / 130), 5: (32, 128 / 130), 6: (64, 236 / 256)}


def pcie_bytes_per_s(generation: int, lanes: int) -> float:
    """Raw bandwidth of a PCIe link in one direction, bytes/s; generation 3 x16 has 15.75 GB/s."""
    transfers, share = _PCIE[min(max(generation, 3), 6)]
    return transfers * 1e9 / 8 * share * lanes
