"""What a user asks of `presim rl`: the options of the verb as one value, which recipes of frameworks fill, too."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from presim.errors import InputError
from presim.post_training.controller import Controller
from presim.post_training.logits import LogitsCode
from presim.post_training.rl_job import Algorithm, Assignment, Offloads, ScoringPool
from presim.post_training.service_pools import ServicePool
from presim.post_training.sglang_release import SglangRelease
from presim.post_training.weights import TransferKind
from presim.serving.defaults import VllmStart
from presim.units import quantities

_BOUNDS = {
    "prompts": quantities.BATCH,
    "samples": quantities.BATCH,
    "epochs": quantities.BATCH,
    "tp": quantities.DEGREE,
    "pp": quantities.DEGREE,
    "ep": quantities.DEGREE,
    "vpp": quantities.DEGREE,
    "turns": quantities.BATCH,
    "keep": quantities.SHARE,
    "cut_tail": quantities.SHARE,
    "reward_workers": quantities.BATCH,
    "seed": quantities.SEED,
}
_COUNTS = (  # those that may be None
    "mini_batch", "tool_tokens", "tool_workers", "round_prompts", "spare_prompts", "rollout_gpus",
    "gpus", "cp", "micro_tokens", "logprob_tokens",
    "micro_sequences", "logprob_sequences", "steps", "lora_rank",
)  # fmt: skip
Fusion: TypeAlias = Literal["norm", "rotary", "activation"]
_MOST_RESPONSES = 1_000_000
_MOST_STEPS = 1000
_SLEEP_LEVELS = (0, 1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RlRequest:
    """Options of a job; those that are None follow from the others."""

    model: str
    prompts: int = 512
    samples: int = 16
    prompt_tokens: str = "1024"
    response: str = "2048"
    algorithm: Algorithm = "grpo"
    turns: int = 1  # of each response: one more than it waits for its environment
    tool_seconds: str | float = "0"  # of an answer of the environment: a number, or `answer_times.answer_times`
    tool_tokens: int | None = None  # of such an answer; None: none
    tool_workers: int | None = None  # answers of the environment at once; None: any number
    keep: float = 1.0  # share of prompts that a filter of rewards keeps; others are generated and dropped
    round_prompts: int | None = None  # with --keep: prompts generated at once; None: those of a step
    spare_prompts: int | None = None  # begun beside those of a step; the groups that end last are aborted and dropped
    cut_tail: float = 0.0  # share of responses that are aborted when the others are complete, and dropped
    mini_batch: int | None = None  # prompts of an update; None: all
    epochs: int = 1
    placement: Literal["colocated", "separate", "hybrid"] = "colocated"
    rollout_gpus: int | None = None  # that only generate, unless colocated; None: half
    scoring_pools: tuple[ScoringPool, ...] = ()  # of roles that are not on the actor's pool
    service_pools: tuple[ServicePool, ...] = ()  # an environment and a judge, with GPUs of their own or without
    gpus: int | None = None  # of all pools, where a placement says how many; None: the cluster's
    staleness: float = 0.0
    partial: bool = False
    tp: int = 1
    cp: int | None = None  # None: the smallest with which a micro-batch fits
    pp: int = 1
    ep: int = 1
    dp_style: Literal["fsdp2", "hsdp", "ddp", "zero1"] = "fsdp2"
    shard: int = 0  # consecutive data-parallel ranks that shard parameters, with copies on others; 0: all
    recompute: Literal["none", "full"] = "full"
    micro_tokens: int | None = None  # most tokens of a micro-batch on a GPU; None: the longest sample, at least 16,384
    logprob_tokens: int | None = None  # likewise, of log-probabilities; None: as micro_tokens
    micro_sequences: int | None = None  # responses of each micro-batch; None: as many as micro_tokens holds
    logprob_sequences: int | None = None  # likewise, of log-probabilities; None: as micro_sequences
    pads: bool = False  # micro-batches to micro_tokens, as Megatron's pipelines want them all alike
    pads_to_longest: bool = False  # with micro_sequences: each response to the longest of its batch, as without packing
    balance: bool = True  # data-parallel ranks get shares with balanced sums; else consecutive ones
    vpp: int = 1  # virtual stages of a pipeline rank
    stages: tuple[int, ...] | None = None  # blocks of each pipeline stage; None: as equal as possible
    routing: str = "balanced"  # experts that tokens choose, as `presim compose --routing`
    expert_exchange: Literal["all-to-all", "all-gather", "deepep"] = "all-to-all"
    offload_optimizer: Literal["none", "cpu", "states"] = "none"  # during updates, too
    reshard: bool = True  # FSDP2: gathered parameters are freed after a block's forward pass
    lora_rank: int | None = None  # of adapters that are trained in place of the weights; None: these are
    merge_adapters: bool = False  # into the weights that engines get; else engines serve the base with adapters
    routing_replay: bool = False  # routers' choices of rollouts go to the updates
    sleep_level: int = 2  # of a colocated engine while GPUs train: 0 keeps all, 1 has weights on the host, 2 nothing
    logits: LogitsCode = "composed"  # whose code computes log-probabilities
    reference: bool | None = None  # None: as the algorithm usually has
    critic: bool | None = None  # None: as the algorithm has
    reward_model: bool = False  # of the actor's size, on its GPUs
    old_logprobs: bool = True
    transfer: TransferKind = "per-parameter"  # of weights; packed: limited by links alone
    overlap_sync: bool = False  # separate engines generate during a transfer, and stop to load what they got
    offload: tuple[Offloads, ...] = ()
    engine: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # fields of `presim.serving.serving_plan.ServingPlan`
    vllm_start: VllmStart = "server"  # its limits are those of this way to start it, where the engine has none
    sglang_release: SglangRelease = "0.5"  # with kernels sglang: the speed of its steps
    assignment: Assignment = "balanced"  # of responses to engines
    controller: Controller = "none"  # that sends batches to workers through one process
    reward_seconds: str | float = "0"  # of a response's reward: a number, or `answer_times.answer_times`
    reward_workers: int = 64
    fusions: tuple[Fusion, ...] | None = None  # fused parts of composed layers; None: all if the plan is Megatron's
    framework: Literal["megatron", "hf"] | None = None  # whose trainer is captured for the update; None: it is composed
    framework_args: tuple[str, ...] = ()  # fields of its configuration
    force: bool = False  # predict also what does not fit memory
    steps: int | None = None  # None: 1, or until pools are full and 4 more
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise InputError on a number out of bounds."""
        for name, quantity in _BOUNDS.items():
            quantity.check(getattr(self, name), name)
        for name in _COUNTS:
            if (number := getattr(self, name)) is not None:
                quantities.BATCH.check(number, name)
        quantities.STALENESS.check(self.staleness, "staleness")
        if self.framework == "megatron" and self.dp_style not in ("zero1", "ddp"):
            raise InputError(
                f"--framework megatron trains with the data-parallel styles zero1 and ddp, not {self.dp_style}; add "
                "--dp-style zero1, or leave out --framework"
            )
        if self.framework == "hf" and self.dp_style not in ("fsdp2", "ddp"):
            raise InputError(
                f"--framework hf trains with the data-parallel styles fsdp2 and ddp, not {self.dp_style}; add "
                "--dp-style fsdp2, or leave out --framework"
            )
        if self.lora_rank is not None and (self.tp > 1 or self.pp > 1) and self.dp_style in ("fsdp2", "ddp"):
            raise InputError(
                f"adapters with --dp-style {self.dp_style} are trained on whole layers, and --tp is {self.tp} and --pp "
                f"{self.pp}; set both to 1, or add --dp-style zero1"
            )
        if self.framework_args and self.framework is None:
            raise InputError("--framework-args are fields of a framework's configuration; add --framework megatron")
        if self.sleep_level not in _SLEEP_LEVELS:
            raise InputError(f"--sleep-level is 0, 1 or 2, not {self.sleep_level}; correct it")
        if self.pads_to_longest and not self.micro_sequences:
            raise InputError(
                "--pad-to-longest is of micro-batches with a number of responses; add --micro-sequences, or leave "
                "it out"
            )
        if self.merge_adapters and self.lora_rank is None:
            raise InputError("--merge-adapters is of adapters that are trained; add --lora-rank, e.g. --lora-rank 32")
        if self.cut_tail == 1:
            raise InputError("--cut-tail 1 aborts all responses; use a share below 1")
        prompts = self.prompts + (self.spare_prompts or 0)
        responses = math.ceil(prompts * self.samples * (1 + self.staleness))
        if responses > _MOST_RESPONSES:
            raise InputError(
                f"{responses:,} responses at once are more than the {_MOST_RESPONSES:,} that are simulated; use fewer "
                "--prompts or --samples"
            )
        if (self.steps or 1) > _MOST_STEPS:
            raise InputError(f"{self.steps:,} steps are more than {_MOST_STEPS:,}; use fewer --steps")


def request_of(model: str, fields: Mapping[str, Any]) -> RlRequest:
    """The request with these fields.

    Raises:
        InputError: one of them is unknown, with the nearest that is known, or out of bounds.
    """
    names = {field.name for field in dataclasses.fields(RlRequest)}
    for name in fields:
        if name not in names:
            matches = difflib.get_close_matches(name, sorted(names), 1)
            raise InputError(
                f"a post-training job has no {name!r}; " + (f"use {matches[0]}" if matches else "leave it out")
            )
    return RlRequest(model=model, **fields)
