"""A saved job on another number of ranks, by its own capture or by a second one on more ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from presim.errors import InputError

if TYPE_CHECKING:
    from presim.trace.job_store import StoredJob
    from presim.trace.schema import Group, Trace


class Rescaled(NamedTuple):
    """Traces at a world size, the ranks that each represents, and notes for the result; none at the captured size."""

    traces: list[Trace]
    stands_for: Mapping[int, Sequence[int]]
    notes: list[str]


def wider_folder(directory: str | os.PathLike[str]) -> Path | None:
    """The folder of the capture on more ranks that lies in a job's folder (`presim run --wider`); None without it."""
    from presim.system.files import names_file
    from presim.trace import job_store

    folder = Path(directory) / job_store.WIDER
    return folder if names_file(folder / job_store.JOB_FILE) else None


def wider_job(
    job: StoredJob, directory: str | os.PathLike[str], named: str | os.PathLike[str] | None
) -> StoredJob | None:
    """The capture on more ranks: the named one, else that in the job's folder where ranks hold shards; None: none.

    Raises:
        InputError: there is no job in the named folder, or it is damaged.
    """
    from presim.trace import job_store
    from presim.trace.rescale import sharded_group

    folder = named
    if named is None and sharded_group(_traces(job)) is not None:
        folder = wider_folder(directory)
    return None if folder is None else job_store.load(folder)


def world_size_of(job: StoredJob, data_parallel_ranks: int, wider: StoredJob | None = None) -> int:
    """The world size of a job with another number of data-parallel ranks.

    Raises:
        InputError: they hold shards of the parameters, or it is not known which ranks they are.
    """
    from presim.composition.replan.replan_ranks import shared_digit
    from presim.trace.rescale import data_parallel, sharded_group

    if wider is not None:
        return wider.manifest.world_size // shared_digit(_traces(job), _traces(wider)).size * data_parallel_ranks
    traces = _traces(job)
    world, shards = job.manifest.world_size, sharded_group(traces)
    if shards is not None:
        raise _holds_shards(shards, world, world // shards.size * data_parallel_ranks)
    return world // data_parallel(traces).size * data_parallel_ranks


def at_size(job: StoredJob, world_size: int, wider: StoredJob | None = None) -> Rescaled:
    """A job at a world size.

    Raises:
        InputError: the job has to be captured at that size.
    """
    from presim.composition.replan.replan_ranks import with_ranks
    from presim.trace.rescale import at_world_size, sharded_group

    traces = _traces(job)
    captured = job.manifest.world_size
    if world_size == captured:
        return Rescaled(traces, job.manifest.others(), [])
    if wider is not None and world_size == wider.manifest.world_size > captured:
        return Rescaled(_traces(wider), wider.manifest.others(), [f"From the capture on {world_size} GPUs."])
    if wider is not None:
        return Rescaled(*with_ranks(traces, _traces(wider), wider.manifest.others(), world_size))
    if (shards := sharded_group(traces)) is not None:
        raise _holds_shards(shards, captured, world_size)
    return Rescaled(*at_world_size(traces, job.manifest.others(), world_size))


def _traces(job: StoredJob) -> list[Trace]:
    return [job.traces[rank] for rank in sorted(job.traces)]


def _holds_shards(shards: Group, captured: int, world_size: int) -> InputError:
    second = 2 * captured
    by_law = (
        f", or with --world-size {second} and name the folder of that capture with --wider"
        if world_size > second
        else ""
    )
    return InputError(
        f"the {shards.size} ranks of {shards.name!r} hold shards of the parameters, and their sizes change with "
        f"their number; capture the job with --world-size {world_size}{by_law}"
    )
