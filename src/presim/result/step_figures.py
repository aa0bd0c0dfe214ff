"""Figures of a step that are computed from its timelines: the app's panes show them, and reports draw them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Pass: TypeAlias = tuple[int, int, int, int]  # start ns, end ns, index into the kinds, number of its kind from 1
Link: TypeAlias = tuple[int, int, float, list[int]]  # two vertices, bytes/s, percent of the busier direction by moment


class RankPasses(msgspec.Struct, frozen=True):
    """The passes of a rank in the order of their start."""

    rank: int
    passes: list[Pass]
    idle: float  # share of the step in which no pass runs


class StagePasses(msgspec.Struct, frozen=True):
    """The pipeline diagram: forward and backward passes of every micro-batch, for each simulated rank."""

    from_ns: int = msgspec.field(name="from")
    to_ns: int = msgspec.field(name="to")
    kinds: tuple[str, ...]
    ranks: list[RankPasses]  # none where the job sends no messages
    left_out: int  # further ranks that were simulated
    is_even: bool  # whether all ranks have as many passes of each kind


class Vertex(msgspec.Struct, frozen=True):
    """A GPU, port or switch in the drawing of a network."""

    name: str
    kind: str
    x: float  # 0 to 1
    y: float


class LinkLoads(msgspec.Struct, frozen=True):
    """A network and the load of its links in equal parts of the step.

    A load is the bytes that collectives put on a link over what it can carry.
    """

    sentence: str = ""  # why there is nothing else
    from_ns: int = msgspec.field(default=0, name="from")
    to_ns: int = msgspec.field(default=0, name="to")
    gpus: int = 0
    is_described: bool = False  # by the cluster's file; else it is the usual network of the fabric
    left_out: list[str] = []  # collectives whose bytes are not counted
    by_kind: dict[str, list[int]] = {}  # the busiest link of each kind by moment, percent
    vertices: list[Vertex] = []  # none: too many GPUs to draw
    links: list[Link] = []


class RooflinePoint(msgspec.Struct, frozen=True):
    """Kernels of one shape."""

    name: str
    shape: str  # empty where bytes alone tell kernels of the family apart
    module: str  # that runs them most often
    intensity: float  # FLOP/byte
    rate: float  # FLOP/s
    bytes_per_s: float
    seconds: float  # of all calls in the trace
    bound: str
    level: str  # the smallest level of memory that holds what a call moves


class MemoryLevel(msgspec.Struct, frozen=True):
    """A slope of the roofline."""

    name: str
    bytes_per_s: float
    origin: str


class Roofline(msgspec.Struct, frozen=True):
    """Kernels by arithmetic intensity and FLOP rate, with the peak and the bandwidth of each level of memory."""

    points: list[RooflinePoint]
    peak: float | None  # FLOP/s; None: the trace has no products
    levels: list[MemoryLevel]
    dtype: str  # of the peak


class StepFigures(msgspec.Struct, frozen=True):
    """What a report draws of a step beside its result."""

    passes: StagePasses
    loads: LinkLoads
    roofline: Roofline
