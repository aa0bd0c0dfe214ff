"""Time to bring new weights to the engines, and to copy a role's state between GPU and host memory."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from presim.composition.models.description import Model
from presim.cost.collectives.network_model import Transfer, first_answers
from presim.cost.collectives.network_models import collective_models
from presim.hardware import Cluster
from presim.hardware import constants as calibration
from presim.post_training.rl_job import Placement
from presim.serving.serving_plan import WEIGHT_BYTES
from presim.serving.steps.lora import adapter_bytes
from presim.serving.steps.times import PricedEngine
from presim.trace.collective import Collective
from presim.trace.schema import Group

_TRAINED_BYTES = 2  # of a parameter as it is sent: bf16
# A transfer parameter by parameter is bound by software, not by links. Five published transfers of verl, 15 to 470 GB,
# follow a power of their size; without a transfer's source it is 19 % off in the median, and a line 24 %
# (validation/weight_syncs.py, validation/results/weight-syncs.md).
_SOFTWARE_GB_S = 0.690
_SOFTWARE_EXPONENT = 0.736
# NeMo RL wakes a colocated engine, moves the trainer's state to the host and hands over weights: 13.1 s for Qwen3-30B
# and 30.4 s for Qwen3-235B on B200, in all (NVIDIA-NeMo/RL pull request 3294, after its change): a line through both,
# which gives 13.2 s for Nemotron 3 Nano, where 11.6 s were measured. Engines there quantise the weights to MXFP8.
_REFIT_START_S = 10.5
_REFIT_BYTES_PER_S = 23.6e9
# verl's checkpoint engine sends Qwen3-30B in 4.38 s and Qwen3-235B in 23.7 s between pools of H20 (verl's
# docs/advance/fully_async.md, 2026-08): a line through both, with no third figure to compare it with.
_ENGINE_START_S = 1.5
_ENGINE_BYTES_PER_S = 21.2e9
TransferKind: TypeAlias = Literal["per-parameter", "packed", "checkpoint-engine"]


@dataclasses.dataclass(frozen=True)
class WeightSync:
    """Parts of a transfer of all weights from trainer to engines, one after the other; seconds."""

    gather_s: float  # trainer's shards to whole parameters
    broadcast_s: float  # to the GPUs of the engines; 0 where both sides share GPUs
    load_s: float  # copies into the engine's own tensors
    sent_bytes: int
    software_s: float = 0.0  # what software takes for all of this, where it handles one parameter after the other

    @property
    def seconds(self) -> float:
        """All of it: the slower of links and software."""
        return max(self.gather_s + self.broadcast_s + self.load_s, self.software_s)


def weight_sync(
    model: Model,
    engine: PricedEngine,
    cluster: Cluster,
    placement: Placement,
    *,
    transfer: TransferKind = "per-parameter",
    adapter_rank: int | None = None,
) -> WeightSync:
    """Price the transfer on the described network: parameters are gathered by all training GPUs, then sent as bf16.

    Separate pools get them by a broadcast from the first training GPU, on a described network flow by flow. An engine
    copies its own part of each parameter into its tensors, and reads and writes what its weight type needs. With
    ``packed`` many parameters are sent together, so that links alone limit it between pools; colocated, NeMo RL's
    software does. ``checkpoint-engine`` is verl's, between pools. ``adapter_rank``: adapters of this rank are sent
    alone; None: all weights are.
    """
    sent_bytes = int(model.parameters * _TRAINED_BYTES)
    if adapter_rank is not None:
        unsplit = dataclasses.replace(engine.plan, tp=1, pp=1, max_loras=1, lora_rank=adapter_rank)
        sent_bytes = adapter_bytes(model.counts(), model.hidden, unsplit)
    is_packed = transfer == "packed"
    train = tuple(range(placement.train_gpus))
    gather_s = _collective_s("all_gather", sent_bytes, train, cluster)
    broadcast_s = 0.0
    if not placement.is_colocated:
        generating_gpus = placement.train_gpus + placement.engine_gpus
        rollout = tuple(range(placement.train_gpus, generating_gpus))
        # NeMo RL broadcasts packed buffers in a group of all GPUs (grpo.py, commit 7ea279ab); verl's first trainer
        # sends to the engines' GPUs alone, through its own NIC.
        receivers = range(1, generating_gpus) if is_packed else rollout
        broadcast_s = _collective_s("broadcast", sent_bytes, (0, *receivers), cluster)
        if not is_packed and generating_gpus > cluster.gpus_per_node:
            broadcast_s = max(broadcast_s, sent_bytes / cluster.network_bytes_per_s_of((0,)))
    part = sent_bytes / _TRAINED_BYTES / (engine.plan.tp * engine.plan.pp)
    load_bytes = part * (_TRAINED_BYTES + WEIGHT_BYTES[engine.plan.weights])
    software_s = software_seconds(sent_bytes)
    if transfer == "checkpoint-engine" and not placement.is_colocated:  # of GPUs that switch, the slower of both
        engine_s = _ENGINE_START_S + sent_bytes / _ENGINE_BYTES_PER_S
        software_s = max(software_s, engine_s) if placement.has_switches else engine_s
    if is_packed:
        software_s = _REFIT_START_S + sent_bytes / _REFIT_BYTES_PER_S if placement.has_switches else 0.0
    return WeightSync(gather_s, broadcast_s, load_bytes / cluster.gpu.memory_bytes_per_s, sent_bytes, software_s)


def software_seconds(sent_bytes: float) -> float:
    """Seconds of a framework's software to send so many bytes of weights parameter by parameter."""
    return float(_SOFTWARE_GB_S * (sent_bytes / 1e9) ** _SOFTWARE_EXPONENT)


def _collective_s(kind: str, size_bytes: int, ranks: tuple[int, ...], cluster: Cluster) -> float:
    if len(ranks) < 2:
        return 0.0
    call = Collective(kind, size_bytes, "bfloat16", 0, peer=0 if kind == "broadcast" else -1)
    transfer = Transfer(call, Group("weights", ranks, len(ranks)))
    price = first_answers(collective_models(cluster), [transfer], cluster)[0]
    assert price is not None  # the last model has one of every transfer
    return price.duration_ns / 1e9


def host_copy_s(size_bytes: float, cluster: Cluster) -> float:
    """Seconds to copy so many bytes of one GPU to or from pinned host memory, all GPUs of a node at once.

    Frameworks pin it: NeMo RL and verl's Megatron trainer by name, and PyTorch does for `tensor.to("cpu",
    non_blocking=True)`, with which verl's FSDP trainer moves parameters and optimizer states. GPUs with a link of their
    own to the host's memory use it (`c2c`); others, PCIe.
    """
    link = max(cluster.pcie_bytes_per_s, cluster.gpu.c2c_bytes_per_s)
    return size_bytes / (link * calibration.value("copy.pinned_share"))
