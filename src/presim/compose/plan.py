"""How a model is trained on a cluster: one typed value, checked before anything is composed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from presim.compose.runtime.updates import Choice
from presim.errors import InputError


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Degrees of parallelism and what else decides what a rank does; sizes are of one rank where not said otherwise."""

    sequence: int  # tokens of a sample
    micro_batch: int = 1  # samples of one forward pass
    global_batch: int = 0  # samples of a step of all ranks; 0: one micro-batch for each data-parallel rank
    tensor: int = 1  # tensor-parallel ranks; the others shard parameters and data between them by FSDP2
    sequence_parallel: bool = False  # tensor-parallel ranks split what lies between their layers along the sequence
    vocabulary_parallel: bool = False  # they split embedding, output layer and loss by words; so does sequence_parallel
    context: int = 1  # ranks that have a part of each sequence
    context_style: Literal["all-gather", "ulysses", "ring"] = "all-gather"  # how their attention sees the other parts
    expert: int = 1  # neighbours that share out the experts of a layer; each keeps its own tokens' share of the rest
    pipeline: int = 1  # stages' ranks
    virtual: int = 1  # stages of each rank
    schedule: Literal["", "gpipe", "1f1b", "interleaved", "zero-bubble"] = ""  # empty: 1f1b, interleaved if virtual
    data_style: Literal["fsdp2", "hsdp", "ddp", "zero1"] = "fsdp2"  # what data-parallel ranks share
    shard: int = 0  # of hsdp: neighbouring data-parallel ranks that shard parameters; others have copies
    overlap: bool = True  # of ddp and zero1: gradients and parameters travel while the model computes
    stages: tuple[int, ...] = ()  # repeated blocks of each stage; empty: as equal as can be
    reshard: bool = True  # FSDP2: parameters of a block are freed after its forward pass
    keep_last: bool = False  # FSDP2: except of the last block, as torchtitan does
    recompute: Literal["none", "full"] = "none"  # of each repeated block
    activation_budget: float = 1.0  # blocks keep this part of their activations; the cheapest others run again
    optimizer: Choice = "adamw"
    clip: bool = True  # gradients are clipped to a norm
    attention: Literal["auto", "cudnn", "flash"] = "auto"  # fused attention; auto: cuDNN from Hopper on, else flash
    passes: tuple[str, ...] = ()  # further changes of the graph, in order: fusion, quantisation, the user's own
    offload_activations: int = 0  # so many blocks of each rank, from the first on, keep activations in host memory
    offload_optimizer: Literal["none", "cpu", "states"] = "none"  # in host memory: updated by the CPU, or streamed
    recompute_blocks: int = 0  # so many blocks are recomputed, from the first on; 0: all
    cuda_graphs: bool = False  # kernels are launched by CUDA graphs: no host time between them
    # framework style, for launch times; empty: as `launch_style` says
    style: Literal["", "eager", "ddp", "dtensor", "dtensor-sequence", "megatron"] = ""

    def data(self, world_size: int) -> int:
        """Data-parallel ranks."""
        return world_size // (self.tensor * self.context * self.pipeline)

    def sharing(self, world_size: int) -> int:
        """Ranks that shard parameters or sum gradients: of other data, and of other parts of the same sequences."""
        return world_size // (self.tensor * self.pipeline)

    def micro_batches(self, world_size: int) -> int:
        """Micro-batches of a step of one rank."""
        return max(1, self.global_batch // (self.micro_batch * self.data(world_size)))

    @property
    def local_sequence(self) -> int:
        """Tokens of a sample that a rank has between its split layers."""
        return self.sequence // self.parts

    @property
    def parts(self) -> int:
        """Into how many parts a sequence is split."""
        return self.context * (self.tensor if self.sequence_parallel else 1)

    @property
    def splits_words(self) -> bool:
        """Whether embedding, output layer and loss are split by words."""
        return self.vocabulary_parallel or self.sequence_parallel

    @property
    def order(self) -> str:
        """The schedule that is meant."""
        return self.schedule or ("interleaved" if self.virtual > 1 else "1f1b")

    @property
    def launch_style(self) -> str:
        """Whose launch times: the plan's style, or the framework's; DTensor's for FSDP2 with tensor parallelism."""
        own = {"ddp": "ddp", "zero1": "megatron"}
        split = "dtensor-sequence" if self.sequence_parallel else "dtensor"
        return self.style or own.get(self.data_style, split if self.tensor > 1 else "eager")


def read_plan(path: str | None, said: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a TOML file, completed and overridden by what is said beside it; ``usual``: what neither says.

    Raises:
        InputError: the file cannot be read, a field is unknown or of the wrong type, or none says the sequence.
    """
    fields: dict[str, Any] = {}
    if path is not None:
        try:
            fields = tomllib.loads(Path(path).read_text())
        except OSError as error:
            raise InputError(f"cannot read the plan {path}: {error.strerror}; name another file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is no TOML: {error}; correct it") from error
    fields = {**(usual or {}), **fields, **said}
    if "sequence" not in fields:
        raise InputError("a plan needs the tokens of a sample: use --seq, e.g. --seq 4096, or `sequence` in the plan")
    try:
        return msgspec.convert(fields, Plan)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(Plan))
        raise InputError(f"{path or 'the plan'}: {error}; a plan has {known}") from error
