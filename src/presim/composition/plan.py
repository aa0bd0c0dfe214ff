"""The training plan of a model on a cluster: one typed value, validated before composing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from presim.composition.runtime.updates import Choice
from presim.errors import InputError
from presim.system.files import FormatError, convert, decode_toml, read_text
from presim.system.files.field_bounds import Count, Ratio, Real, bounds
from presim.units import quantities

Degree = Annotated[int, bounds(quantities.DEGREE)]


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Degrees of parallelism and other choices that determine a rank's work; sizes are per rank unless noted."""

    sequence: Annotated[int, bounds(quantities.SEQUENCE)]  # tokens per sample
    micro_batch: Annotated[int, bounds(quantities.BATCH)] = 1  # samples per forward pass
    global_batch: Count = 0  # samples per step over all ranks; 0: one micro-batch per data-parallel rank
    tensor: Degree = 1  # tensor-parallel degree; the remaining ranks are data-parallel
    sequence_parallel: bool = False  # split activations between tensor-parallel layers along the sequence
    # split embedding, output layer and loss by vocabulary; implied by sequence_parallel
    vocabulary_parallel: bool = False
    context: Degree = 1  # context-parallel degree: each rank has a part of every sequence
    # how attention gets keys and values of the other ranks
    context_style: Literal["all-gather", "ulysses", "ring"] = "all-gather"
    expert: Degree = 1  # expert-parallel degree: consecutive ranks share the experts of each layer
    # how tokens reach their experts: once per expert, to all ranks of the group, or once per rank
    expert_exchange: Literal["all-to-all", "all-gather", "deepep"] = "all-to-all"
    routing: str = "balanced"  # experts that tokens choose, as `presim run --values routing=`; needs expert > 1
    # tokens that an expert takes of each rank, relative to an even share; others drop; 0: all
    expert_capacity: Ratio = 0.0
    pad_experts: bool = False  # every expert computes as many tokens as its capacity
    pipeline: Degree = 1  # pipeline-parallel degree
    virtual: Degree = 1  # virtual stages per rank
    # empty: 1f1b, or interleaved if virtual > 1
    schedule: Literal["", "gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe", "dualpipev", "own"] = ""
    side_by_side: bool = False  # DualPipe: forward passes run beside the backward passes that follow them
    rank_passes: tuple[str, ...] = ()  # schedule own: the passes of each rank, as "0F0,0F1,0B0,0B1"
    data_style: Literal["fsdp2", "hsdp", "ddp", "zero1"] = "fsdp2"  # data-parallel style
    shard: Count = 0  # hsdp: number of consecutive data-parallel ranks that shard parameters; 0: not set
    overlap: bool = True  # ddp and zero1: overlap communication of gradients and parameters with compute
    stages: tuple[Count, ...] = ()  # repeated blocks per stage; empty: as equal as possible
    reshard: bool = True  # FSDP2: free a block's gathered parameters after its forward pass
    keep_last: bool = False  # FSDP2: do not free the last block's parameters, as torchtitan does
    # FSDP2: the embedding is a unit, and norm and output layer are another, as in torchtitan's trainer
    separate_ends: bool = False
    recompute: Literal["none", "full"] = "none"  # activation recomputation of repeated blocks
    activation_budget: Real = 1.0  # share of a block's activations to keep; the rest is recomputed at the least cost
    optimizer: Choice = "adamw"
    clip: bool = True  # clip gradients by norm
    # attention backend; auto: cuDNN on Hopper and newer, else flash
    attention: Literal["auto", "cudnn", "flash", "flex"] = "auto"
    passes: tuple[str, ...] = ()  # additional graph passes, in order: fusion, quantisation, user-defined
    offload_activations: Count = 0  # so many blocks of each rank, from the first on, keep activations in host memory
    offload_optimizer: Literal["none", "cpu", "states"] = "none"  # in host memory: updated by the CPU, or streamed
    # recompute whole blocks, not only what the backward pass needs: torchtitan, torchao's layers; Megatron always does
    recompute_whole: bool = False
    recompute_blocks: Count = 0  # number of blocks to recompute, from the first; 0: all
    cuda_graphs: bool = False  # launch kernels with CUDA graphs: no host time between them
    # framework style of the launch times; empty: eager, or dtensor with tensor parallelism
    style: Literal["", "eager", "ddp", "dtensor", "dtensor-sequence", "megatron"] = ""

    def data(self, world_size: int) -> int:
        """Data-parallel degree."""
        return world_size // (self.tensor * self.context * self.pipeline)

    def sharing(self, world_size: int) -> int:
        """Number of ranks that shard parameters or reduce gradients: data-parallel times context-parallel degree."""
        return world_size // (self.tensor * self.pipeline)

    def micro_batches(self, world_size: int) -> int:
        """Micro-batches per step on one rank."""
        return max(1, self.global_batch // (self.micro_batch * self.data(world_size)))

    @property
    def local_sequence(self) -> int:
        """Tokens of a sample on one rank between tensor-parallel layers."""
        return self.sequence // self.parts

    @property
    def parts(self) -> int:
        """Number of parts of a sequence."""
        return self.context * (self.tensor if self.sequence_parallel else 1)

    @property
    def splits_words(self) -> bool:
        """Whether embedding, output layer and loss are split by vocabulary."""
        return self.vocabulary_parallel or self.sequence_parallel

    @property
    def order(self) -> str:
        """The schedule, with the default filled in; one stage has nothing to order, whatever is asked for."""
        if self.pipeline == 1 and self.schedule != "own":
            return "1f1b"
        return self.schedule or ("interleaved" if self.virtual > 1 else "1f1b")

    @property
    def launch_style(self) -> str:
        """Whose launch times: the plan's style, or the framework's; DTensor's for FSDP2 with tensor parallelism."""
        framework_styles = {"ddp": "ddp", "zero1": "megatron"}
        split = "dtensor-sequence" if self.sequence_parallel else "dtensor"
        return self.style or framework_styles.get(self.data_style, split if self.tensor > 1 else "eager")


def named_fields(path: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a TOML file and options set, whether or not a plan has them.

    Raises:
        InputError: the file cannot be read.
    """
    if path is None:
        return dict(options)
    try:
        return {**decode_toml(read_text(path, "name another file of a plan")), **options}
    except FormatError as error:
        raise InputError(f"{path} is not valid TOML: {error}; correct it") from error


def read_plan(path: str | None, options: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Plan:
    """Build a plan from a TOML file, options that override it, and defaults for fields that neither sets.

    Raises:
        InputError: the file cannot be read, a field is unknown or has the wrong type, or the sequence is missing.
    """
    fields = {**(defaults or {}), **named_fields(path, options)}
    if "sequence" not in fields:
        raise InputError("a plan needs the sequence length: use --seq, e.g. --seq 4096, or `sequence` in the plan")
    if fields.get("rank_passes"):
        fields = {"schedule": "own", **{name: value for name, value in fields.items() if name != "schedule" or value}}
    try:
        return convert(fields, Plan)
    except FormatError as error:
        field_names = ", ".join(field.name for field in msgspec.structs.fields(Plan))
        raise InputError(f"{path or 'the plan'}: {error}; a plan has {field_names}") from error
