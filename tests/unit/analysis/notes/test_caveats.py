"""What the notes say about ranks that never communicate."""

from __future__ import annotations

import msgspec
import pytest

from presim.analysis.notes.caveats import _separate_programs_note
from presim.trace.schema import GpuUse, Group, Manifest

COPIES = Manifest(world_size=4, rank=0, gpu="", gpus_per_node=4, script="")
SENTENCE = "The ranks call no collective of NCCL together: the job is 4 copies of a program. Throughput counts "


def test_copies_on_their_own_gpus_all_count() -> None:
    assert _separate_programs_note(COPIES, 4) == [f"{SENTENCE}them all."]


def test_copies_that_share_a_gpu_count_once() -> None:
    sharing = msgspec.structs.replace(COPIES, gpus=(GpuUse(0, 10, 40, 4),))
    assert _separate_programs_note(sharing, 1) == [f"{SENTENCE}1 of them, because 4 share a GPU."]


def test_collectives_within_each_process_join_no_ranks() -> None:
    """As those of `torch.nn.DataParallel`, which uses all GPUs of a node from one process."""
    group = Group("communicator 0", (), 4, is_within_process=True)
    uses = tuple(GpuUse(gpu, 10, 40, 4) for gpu in range(4))
    copies = msgspec.structs.replace(COPIES, groups=(group,), gpus=uses)
    assert _separate_programs_note(copies, 1)[0].startswith(f"{SENTENCE}1 of them")


@pytest.mark.parametrize(
    "changed",
    [{"groups": (Group("default_pg", (), 4),)}, {"world_size": 1}, {"exit": "raised"}, {"origin": "composed"}],
)
def test_other_jobs_get_no_such_note(changed: dict[str, object]) -> None:
    assert _separate_programs_note(msgspec.structs.replace(COPIES, **changed), 4) == []
