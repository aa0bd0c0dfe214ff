"""What the emulated devices note about GPUs that several processes use."""

from __future__ import annotations

from presim.capture.reading.gpu_sharing import absent_neighbours_note, gpu_uses, sharing_notes
from presim.trace.schema import GpuUse

GIB = 1 << 30


def note(gpu: int, own: int, everyone: int, processes: int) -> str:
    return f"gpu index={gpu} own={own * GIB} all={everyone * GIB} processes={processes}"


def test_a_process_alone_on_one_gpu_has_nothing_to_say() -> None:
    assert gpu_uses([note(1, 4, 4, 1), "stream index=0 device=1"], rank=1, gpus_per_node=8) == ()


def test_the_ranks_own_gpu_comes_first() -> None:
    uses = gpu_uses([note(0, 12, 60, 6), note(1, 2, 2, 1)], rank=9, gpus_per_node=8)
    assert uses == (GpuUse(1, 2 * GIB, 2 * GIB, 1), GpuUse(0, 12 * GIB, 60 * GIB, 6))
    assert sharing_notes(uses, 9) == [
        "GPU 0 of the node is used by 6 processes, with a CUDA context each. Together they held up to 60.0 GiB there, "
        "rank 9 12.0 GiB of it."
    ]


def test_ranks_that_did_not_run_may_hold_as_much() -> None:
    uses = (GpuUse(7, 2 * GIB, 2 * GIB, 1), GpuUse(0, 12 * GIB, 12 * GIB, 1))
    assert absent_neighbours_note(uses, 15, [], 80 * GIB) == []
    assert absent_neighbours_note(uses, 15, range(8, 15), 80 * GIB) == [
        "Rank 15 holds 12.0 GiB on GPU 0, which is another rank's. Of its node, ranks 8 to 14 did not run: if each "
        "holds as much there, this GPU needs 96.0 GiB of 80.0 GiB. --ranks names ranks that run together."
    ]
