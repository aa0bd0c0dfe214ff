"""The options of the verbs, one dataclass each, as `presim.run` and the command line take them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from presim.cost.overlap import model_of
from presim.errors import InputError
from presim.units import quantities

_BOUNDS = {
    "nodes": quantities.NODES,
    "gpus_per_node": quantities.GPUS_PER_NODE,
    "world_size": quantities.GPUS,
    "rank": quantities.RANK,
    "host_factor": quantities.HOST_FACTOR,
    "jitter_draws": quantities.DRAWS,
    "seed": quantities.SEED,
    "checks": quantities.RANKS,
    "check_time": quantities.SECONDS,
    "steps": quantities.STEPS,
    "limit": quantities.POSITIVE_SECONDS,
    "draws": quantities.DRAWS,
    "layers": quantities.BLOCKS_OF_MODEL,
    "micro_batches": quantities.MICRO_BATCHES,
    "data_parallel": quantities.DEGREE,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The cluster to predict; options that are not set follow from the others."""

    gpu: str | None = None  # id in the catalogue, or path of a TOML file
    node: str | None = None  # likewise; None: the GPU's usual one
    fabric: str | None = None  # likewise; None: the node's usual one
    nodes: int | None = None
    gpus_per_node: int | None = None
    world_size: int | None = None
    cluster: str | None = None  # path of a TOML file with any of these; options beside it take precedence


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ClusterOptions):
    """Settings of pricing and simulation, and the rank to report on."""

    rank: int | None = None  # of a saved trace: the one to report on; of a run: the one to capture
    contention: bool = True  # concurrent kernels and transfers slow each other down
    overlap_model: str = "analytic"  # slowdown of kernels beside communication: analytic, bandwidth, learned, ratio=X
    host_factor: float | None = None  # time of the cluster's hosts / the reference host's; None: its node's
    host_time: bool = True  # False: the host takes no time
    prices: Sequence[str | os.PathLike[str]] = ()  # folders of tables or models, which precede presim's own
    bandwidth: Sequence[str] = ()  # factors of inter (between nodes) and intra (NVLink), as NAME=FACTOR
    stragglers: Sequence[str] = ()  # speeds of nodes or ranks, as node3=0.8
    scale_op: Sequence[str] = ()  # factors of the time of a family of operators, as gemm=0.5
    estimator: Sequence[str] = ()  # names of estimators in place of presim's chain, as learned or attention=roofline

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _BOUNDS and value is not None:
                _BOUNDS[field.name].check(value, field.name)
        model_of(self.overlap_model)

    @property
    def price_folders(self) -> list[Path]:
        """The folders of ``prices``."""
        return [Path(folder) for folder in self.prices]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateOptions(EvaluationOptions):
    """Further options of simulating a saved job."""

    scale: str | None = None  # another degree of data parallelism, as dp=64
    # the job captured on more ranks, which says how shards follow from their number; None: that in its folder, if any
    wider: str | os.PathLike[str] | None = None
    fail: Sequence[str] = ()  # links, NICs and switches that fail, as node3.nic0 or leaf0-spine0=0.125
    ranks_simulated: str = "auto"  # auto: those that differ; all: every rank of the world by itself
    jitter: Sequence[str] = ()  # relative standard deviations of hosts, gpus and links, as hosts=0.02
    jitter_draws: int = 8  # number of draws
    seed: int = 0  # of the draws
    budget: str = ""  # what the draws may take, as 2h; empty: 10 minutes
    events: str | os.PathLike[str] | None = None  # TOML file of hardware that slows down or fails during a run

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None and (self.nodes or self.world_size):
            raise InputError(
                f"--scale {self.scale} sets the number of ranks, and so do --nodes and --world-size; leave one out"
            )
        if self.wider is not None and not (self.scale or self.nodes or self.world_size or self.cluster):
            raise InputError("--wider says what more ranks do, and no number of them is asked for: add --world-size")
        if self.ranks_simulated not in ("auto", "all"):
            raise InputError(f"ranks simulated are auto or all; got {self.ranks_simulated!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplanOptions(EvaluationOptions):
    """Further options of simulating a saved job under another plan."""

    layers: int | None = None  # of the model; None: as captured
    larger: str | os.PathLike[str] | None = None  # the job captured with more layers, which confirms the law
    # the job captured on more ranks, which says how shards follow from their number
    wider: str | os.PathLike[str] | None = None
    pipeline: int | None = None  # stages, each with the layers of a captured one; None: as captured
    micro_batches: int | None = None  # of each step; None: as captured
    data_parallel: int | None = None  # number of data-parallel ranks; None: as captured, or as the cluster's size asks
    save: str | os.PathLike[str] | None = None  # directory to keep the new job in

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.larger is not None and self.layers is None:
            raise InputError("--larger confirms how layers are added, and no number of them is asked for: add --layers")
        if self.wider is not None and self.larger is not None:
            raise InputError("--larger and --wider are two laws of one call; save the job with --save after the first")
        if self.wider is not None and not (self.data_parallel or self.nodes or self.world_size or self.cluster):
            raise InputError("--wider says what more ranks do, and no number of them is asked for: add --world-size")
        if self.pipeline is not None and (self.layers or self.wider or self.data_parallel):
            raise InputError(
                "--pp adds stages with the layers and ranks of those captured; change layers or ranks in another call, "
                "of the job that --save keeps"
            )
        if self.data_parallel is not None and (self.nodes or self.world_size):
            raise InputError(
                f"--dp {self.data_parallel} sets the number of ranks, and so do --nodes and --world-size; leave one out"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(EvaluationOptions):
    """Further options of capturing a script."""

    module: bool = False  # the script is named as in `python -m`
    ranks: str = "auto"  # ranks to capture: auto finds those that differ; all; or ranks and ranges
    checks: int | None = None  # with auto: how many other ranks to run and compare; None: auto chooses
    check_time: float = 20.0  # seconds; with auto: after this no further ranks are started for comparison
    steps: int | None = None  # stop after this many steps; 0: run to the end; None: until they repeat
    limit: float = 600.0  # seconds; give up on a script that takes longer
    values: Sequence[str] = ()  # policies for values that are not computed, as KEY=VALUE
    draws: int = 1  # captures, each with other draws of the experts that tokens go to; of `values`' routing
    sanitize: bool = False  # check that streams wait for each other before they use a tensor
    live: bool = False  # the script's own clocks show the cluster's time while it runs
    save: str | os.PathLike[str] | None = None  # directory to keep the trace in, for `simulate`
    wider: int | None = None  # GPUs of a second capture, kept beside the first: it says how shards follow from ranks
    profile_missing: bool = False  # measure on this machine's GPU what the first of `prices` lacks
