"""Traces of PyTorch's profiler as a source: one file per rank; some steps of it become the job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.hardware import Cluster, catalogue, choose_cluster
from presim.sources.kineto.entries import Entry, rebuild_entries
from presim.sources.kineto.events import Profile, is_profile, read
from presim.sources.kineto.profile_notes import REPEATED, ProfiledRank, profile_notes, steps_of
from presim.sources.kineto.profile_steps import choose_window
from presim.sources.kineto.profiled_collectives import Groups
from presim.sources.source import SourceRequest
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.trace.schema import COLUMNS, Kind, Manifest, Measured, Trace
from presim.trace.signatures import Collective, Signature


@dataclasses.dataclass(frozen=True)
class Kineto:
    """Reads profiles and rebuilds the entries of their steps."""

    paths: Sequence[Path]
    request: SourceRequest
    name: str = "kineto"
    reader: Callable[[Path], Profile | Sequence[Profile]] = read  # several: of the ranks in one file

    def job(self) -> Job:
        """The steps of all ranks; their work is priced by the measured times.

        Raises:
            InputError: a file cannot be used, or files do not belong together.
        """
        profiles = _by_rank([profile for path in self.paths for profile in _profiles(self.reader(path))])
        first = profiles[min(profiles)]
        world_size = _world_size(profiles)
        stands_for = {rank: _stands_for(profile) for rank, profile in sorted(profiles.items())}
        missing = sorted(
            set(range(world_size)) - set(profiles) - {rank for ranks in stands_for.values() for rank in ranks}
        )
        _check_complete(missing, world_size, self.request.missing)
        cluster = _recorded_on(first, world_size, self.request)
        numbers: tuple[int, ...] | None = None if self.request.step is None else (self.request.step,)
        ranks: list[ProfiledRank] = []
        for rank, profile in sorted(profiles.items()):
            window = choose_window(profile, numbers)
            numbers = window.numbers  # the others' are those of the first
            groups = Groups(profile, rank, world_size)
            ranks.append(ProfiledRank(rank, profile, window, rebuild_entries(profile, window, groups), groups.table()))
        _share_collectives(ranks)
        if not self.request.keeps_pauses:
            for entry in (entry for profiled_rank in ranks for entry in profiled_rank.steps.entries):
                entry.pause_ns = 0
        traces = tuple(_trace(profiled_rank, cluster) for profiled_rank in ranks)
        return Job(
            traces,
            {rank: ranks for rank, ranks in stands_for.items() if ranks},
            RankCoverage(),
            (*profile_notes(ranks, missing, self.name), *first.remarks),
        )


def open_kineto(paths: Sequence[Path], request: SourceRequest) -> Kineto | None:
    """Open files, or folders of them, that look like Chrome traces."""
    files: list[Path] = []
    for path in paths:
        files += sorted(file for file in path.iterdir() if is_profile(file)) if path.is_dir() else [path]
    return Kineto(tuple(files), request) if files and all(map(is_profile, files)) else None


def _profiles(read_profiles: Profile | Sequence[Profile]) -> Sequence[Profile]:
    return (read_profiles,) if isinstance(read_profiles, Profile) else read_profiles


def _by_rank(profiles: Sequence[Profile]) -> dict[int, Profile]:
    profile_by_rank: dict[int, Profile] = {}
    for profile in profiles:
        rank = profile.rank
        if rank is None and len(profiles) > 1:
            match = re.search(r"rank[-_]?(\d{1,7})(?!\d)", profile.path.name)
            if match is None:
                raise InputError(
                    f"{profile.path} does not say which rank it is of (it has no distributedInfo); name it rank-R.json"
                )
            rank = int(match[1])
        if (other := profile_by_rank.get(rank or 0)) is not None:
            raise InputError(f"{other.path} and {profile.path} are both of rank {rank or 0}; give one file per rank")
        profile_by_rank[rank or 0] = profile
    return profile_by_rank


def _world_size(profiles: dict[int, Profile]) -> int:
    sizes = {profile.world_size: profile.path for profile in profiles.values() if profile.world_size}
    if len(sizes) > 1:
        (first_size, first_path), (second_size, second_path) = list(sizes.items())[:2]
        raise InputError(
            f"{first_path} belongs to a job of {first_size} ranks, {second_path} to one of {second_size}; give files "
            "of one job"
        )
    size = next((size for size in sizes if size), None) or max(profiles) + 1
    if max(profiles) >= size:
        raise InputError(f"{profiles[max(profiles)].path} is of rank {max(profiles)} of {size} ranks; record it again")
    return size


def _stands_for(profile: Profile) -> list[int]:
    """Ranks that this one represents, if presim wrote the profile."""
    represented = profile.written_by.get("stands_for", [])
    return [rank for rank in represented if type(rank) is int] if isinstance(represented, list) else []


def _check_complete(absent: Sequence[int], world_size: int, missing: str) -> None:
    if absent and missing == "refuse":
        shown = ", ".join(map(str, absent[:6])) + (", …" if len(absent) > 6 else "")
        raise InputError(
            f"{len(absent)} of {world_size} ranks have no profile ({shown}): give their files too, or use "
            "--missing same if they behave like the given ones"
        )


def _recorded_on(profile: Profile, world_size: int, request: SourceRequest) -> Cluster:
    """The profiled cluster, from the user's options, then from the file."""
    recorded = profile.written_by
    gpu = request.gpu or recorded.get("gpu")
    if gpu is None and request.cluster is None:
        gpu = next((card.id for card in catalogue.gpus() if card.name == profile.device), None)
        if gpu is None:
            named = (
                f"names a GPU that the catalogue does not have, {profile.device!r}"
                if profile.device
                else "names no GPU"
            )
            raise InputError(f"{profile.path} {named}; give it with --gpu")
    sized = request.nodes or request.gpus_per_node
    per_node = request.gpus_per_node or (None if sized else recorded.get("gpus_per_node"))
    return choose_cluster(
        gpu=gpu, node=request.node or recorded.get("node"), fabric=request.fabric or recorded.get("fabric"),
        nodes=request.nodes, gpus_per_node=per_node, world_size=world_size, cluster=request.cluster,
    )  # fmt: skip


def _share_collectives(ranks: Sequence[ProfiledRank]) -> None:
    """Set each collective's duration to that of the last rank to arrive; kernels of other ranks include waiting."""
    met: dict[tuple[object, ...], list[Entry]] = {}
    for profiled_rank in ranks:
        counts: dict[object, int] = {}
        for entry in profiled_rank.steps.entries:
            signature = entry.signature
            if isinstance(signature, Collective) and signature.group < len(profiled_rank.groups):
                ranks_of_group = profiled_rank.groups[signature.group].ranks
                key = (ranks_of_group, *_message_ends(signature, ranks_of_group, profiled_rank.rank))
                counts[key] = counts.get(key, 0) + 1
                met.setdefault((key, counts[key]), []).append(entry)
    for entries in met.values():
        shortest = min(entry.duration_ns for entry in entries)
        for entry in entries:
            entry.duration_ns = shortest


def _message_ends(signature: Collective, ranks: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """(sender, receiver) of a message; (lower, higher) rank if both send in one launch."""
    if signature.kind not in ("send", "recv", "send_recv") or not 0 <= signature.peer < len(ranks):
        return ()
    other = ranks[signature.peer]
    if signature.kind == "send_recv":
        return (*sorted((rank, other)), -1)
    return (rank, other) if signature.kind == "send" else (other, rank)


def _trace(profiled_rank: ProfiledRank, cluster: Cluster) -> Trace:
    rows = _Rows()
    turns = REPEATED if len(profiled_rank.window.numbers) == 1 else 1
    for turn in range(turns):
        for entry in profiled_rank.steps.entries:
            rows.add(entry, turn)
    measured = Measured(
        durations_ns=tuple(duration for _, duration in rows.work),
        gpu=cluster.gpu.id,
        node=cluster.node.id,
        fabric=cluster.fabric.id,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        source=f"{profiled_rank.profile.path.name}, {steps_of(profiled_rank.window)}",
        step_ns=profiled_rank.window.measured_ns,
    )
    manifest = Manifest(
        world_size=cluster.world_size, rank=profiled_rank.rank, gpu=cluster.gpu.id, gpus_per_node=cluster.gpus_per_node,
        script=profiled_rank.profile.path.name, groups=profiled_rank.groups, node=cluster.node.id,
        fabric=cluster.fabric.id, measured=measured, origin="imported",
        stream_priorities=dict(profiled_rank.steps.priorities),
    )  # fmt: skip
    signatures = tuple(signature for signature, _ in rows.work)
    return Trace(manifest, signatures, (), tuple(rows.operators), rows.columns())


class _Rows:
    """Entries as columns; equal work with different measured times becomes separate signatures."""

    def __init__(self) -> None:
        self.work: dict[tuple[Signature, int], int] = {}
        self.operators: dict[str, int] = {}
        self._rows: list[tuple[int, ...]] = []
        self._steps = 0

    def add(self, entry: Entry, turn: int) -> None:
        """Add one entry in a repetition of the step."""
        signature = operator = -1
        kind, serial = entry.kind, entry.serial * REPEATED + turn if entry.serial else 0
        if kind == Kind.STEP:
            serial, self._steps = self._steps, self._steps + 1
        if entry.signature is not None:
            key = entry.signature, entry.duration_ns + entry.pause_ns
            signature = self.work.setdefault(key, len(self.work))
            kind = Kind.COLLECTIVE if isinstance(entry.signature, Collective) else Kind.WORK
        if entry.operator:
            operator = self.operators.setdefault(entry.operator, len(self.operators))
        self._add_row(kind, entry.phase, entry.stream, signature, operator, entry.host_ns, serial, int(entry.replayed))

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The columns of the trace."""
        rows = np.array(self._rows, np.int64).reshape(-1, len(COLUMNS))
        return {name: rows[:, index].astype(dtype) for index, (name, dtype) in enumerate(COLUMNS.items())}

    def _add_row(
        self, kind: int, phase: int, stream: int, signature: int, operator: int, host_ns: int, object_: int, value: int
    ) -> None:
        fields = {
            "kind": kind, "phase": phase, "stream": stream, "signature": signature, "scope": -1, "operator": operator,
            "host_ns": host_ns, "object": object_, "value": value, "site": -1,
        }  # fmt: skip
        self._rows.append(tuple(int(fields[name]) for name in COLUMNS))
