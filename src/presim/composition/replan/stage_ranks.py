"""Ranks, groups and peers of a stage that has another place in a pipeline of another length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from presim.errors import InputError
from presim.trace.collective import MESSAGES, Collective
from presim.trace.schema import Group, Trace
from presim.trace.signatures import Signature

# Planned traces, the ranks that each represents, and sentences for the reader; and what makes them of one pipeline
Extended: TypeAlias = tuple[list[Trace], dict[int, list[int]], list[str]]
ExtendPipeline: TypeAlias = Callable[[Sequence[Trace], Mapping[int, Sequence[int]]], Extended]


@dataclasses.dataclass(frozen=True)
class StageRanks:
    """The ranks of a pipeline: ``stride`` of each stage, the first stage's first."""

    stride: int
    stages: int

    def stage_of(self, rank: int) -> int:
        """The stage that a rank is in."""
        return rank // self.stride


@dataclasses.dataclass(frozen=True)
class StageMove:
    """A captured stage's place, and the one it takes in a pipeline with another number of stages."""

    ranks: StageRanks
    stage: int
    new_stages: int
    new_stage: int

    def new_rank(self, rank: int, *, is_relative: bool = True) -> int:
        """The rank that does what ``rank`` did: of this stage, a neighbour's, or the first or last one's.

        ``is_relative``: a neighbour stays one; else the first and the last stage are meant wherever they are.

        Raises:
            InputError: it is of another stage.
        """
        stage = self.ranks.stage_of(rank)
        if stage == self.stage or (is_relative and abs(stage - self.stage) == 1):
            new_stage = self.new_stage + stage - self.stage
        elif stage in (0, self.ranks.stages - 1):
            new_stage = 0 if stage == 0 else self.new_stages - 1
        else:
            raise InputError(
                f"stage {self.stage} of {self.ranks.stages} communicates with stage {stage}, and it is not known with "
                f"which of {self.new_stages} it would; capture the job with {self.new_stages} stages"
            )
        return rank + (new_stage - stage) * self.ranks.stride

    def new_group(self, group: Group) -> Group:
        """The group among the new stages: all of them if it has all, or the first and the last, or this one's ranks."""
        if not group.ranks:
            return group
        stages = {self.ranks.stage_of(rank) for rank in group.ranks}
        if len(stages) == self.ranks.stages > 1:
            first = [rank for rank in group.ranks if self.ranks.stage_of(rank) == 0]
            ranks = sorted(rank + stage * self.ranks.stride for rank in first for stage in range(self.new_stages))
        elif stages == {0, self.ranks.stages - 1}:
            shift = (self.new_stages - self.ranks.stages) * self.ranks.stride
            ranks = [rank + shift if self.ranks.stage_of(rank) else rank for rank in group.ranks]
        else:
            ranks = [self.new_rank(rank) for rank in group.ranks]
        return Group(group.name, tuple(ranks), len(ranks), group.ordinal)

    def new_signature(self, signature: Signature, groups: Sequence[Group], new_groups: Sequence[Group]) -> Signature:
        """The signature with the new position of its root or peer.

        ``groups``: of the captured trace, and the same ones among the new stages.

        Raises:
            InputError: its size depends on the number of stages.
        """
        if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
            return signature
        group, new_group = groups[signature.group], new_groups[signature.group]
        if group.size != new_group.size and signature.kind in ("reduce_scatter", "all_to_all"):
            raise InputError(
                f"the {signature.kind} over the {group.size} ranks of {group.name!r} reaches over stages, so its size "
                f"depends on their number; capture the job with {self.new_stages} stages"
            )
        ranks = group.ranks
        if not 0 <= signature.peer < len(ranks):
            return signature
        new_peer = self.new_rank(ranks[signature.peer], is_relative=signature.kind in MESSAGES)
        peer = new_group.ranks.index(new_peer)
        return msgspec.structs.replace(signature, peer=peer)

    def moved(self, trace: Trace) -> Trace:
        """The trace with its rank, groups, roots and peers among the new stages."""
        manifest = trace.manifest
        groups = tuple(map(self.new_group, manifest.groups))
        signatures = tuple(self.new_signature(signature, manifest.groups, groups) for signature in trace.signatures)
        new_manifest = msgspec.structs.replace(
            manifest,
            world_size=self.ranks.stride * self.new_stages,
            rank=self.new_rank(manifest.rank),
            groups=groups,
        )
        return dataclasses.replace(trace, manifest=new_manifest, signatures=signatures)


def each_pipeline(extend: ExtendPipeline, traces: Sequence[Trace], stands_for: Mapping[int, Sequence[int]]) -> Extended:
    """The traces of several pipelines side by side, each extended alone.

    A job has several where ranks of one stage differ, as those of context parallelism do, which begin a ring's messages
    in turn. ``stands_for``: the ranks that captured ones represent.
    """
    stride = _stride(traces)
    by_offset: dict[int, list[Trace]] = {}
    for trace in traces:
        by_offset.setdefault(trace.manifest.rank % stride, []).append(trace)
    extended = [extend(by_offset[offset], stands_for) for offset in sorted(by_offset)]
    of_all = [trace for planned, _, _ in extended for trace in planned]
    represented = {rank: ranks for _, of_ranks, _ in extended for rank, ranks in of_ranks.items()}
    sentences = list(dict.fromkeys(sentence for _, _, sentences_of_one in extended for sentence in sentences_of_one))
    return sorted(of_all, key=lambda trace: trace.manifest.rank), represented, sentences


def num_stages(traces: Sequence[Trace]) -> int:
    """Stages of a job's pipeline; 1 without one, and as many as ranks that send their neighbour messages otherwise."""
    return traces[0].manifest.world_size // _stride(traces)


def stage_ranks(traces: Sequence[Trace]) -> StageRanks:
    """The ranks of a job's pipeline.

    Raises:
        InputError: no ranks send each other messages, or a stage has several traces or none.
    """
    ranks = StageRanks(_stride(traces), num_stages(traces))
    if ranks.stages == 1:
        raise InputError(
            "no ranks of this job send each other messages as stages of a pipeline do, so it is not known what more "
            "stages do; capture it with the number of stages that you want"
        )
    stages = [ranks.stage_of(trace.manifest.rank) for trace in traces]
    if sorted(stages) != list(range(ranks.stages)):
        raise InputError(
            f"the job has {ranks.stages} stages, and the capture has ranks of stages "
            f"{', '.join(map(str, sorted(stages)))}; capture one rank of each"
        )
    return ranks


def _stride(traces: Sequence[Trace]) -> int:
    """The ranks of a stage, by the distance of those that send each other messages; all ranks without a pipeline."""
    world_size = traces[0].manifest.world_size
    distances = {distance for trace in traces for distance in _message_distances(trace).values()}
    # The first and the last stage may send to each other, as with several chunks: that distance divides no world.
    return max((distance for distance in distances if distance and world_size % distance == 0), default=world_size)


def messages_between_stages(trace: Trace) -> list[int]:
    """The signatures of messages to ranks of other stages; those within a stage are of rings, as for contexts."""
    stride = _stride([trace])
    return [number for number, distance in _message_distances(trace).items() if distance >= stride]


def _message_distances(trace: Trace) -> dict[int, int]:
    """How far away the rank is that gets or sends the messages of a signature."""
    groups = trace.manifest.groups
    return {
        number: abs(groups[signature.group].ranks[signature.peer] - trace.manifest.rank)
        for number, signature in enumerate(trace.signatures)
        if isinstance(signature, Collective) and signature.kind in MESSAGES and signature.group >= 0
        if 0 <= signature.peer < len(groups[signature.group].ranks)
    }


def represented_ranks(
    ranks: StageRanks, moves: Sequence[StageMove], captured: Mapping[int, Sequence[int]], representatives: Sequence[int]
) -> dict[int, list[int]]:
    """The ranks that each new one represents; ``captured``: those of captured ranks, ``representatives``: these."""
    represented: dict[int, list[int]] = {}
    for move, rank in zip(moves, representatives):
        shift = (move.new_stage - move.stage) * ranks.stride
        of_stage = [twin for twin in captured.get(rank, ()) if ranks.stage_of(twin) == move.stage]
        represented[rank + shift] = [twin + shift for twin in of_stage]
    return represented
