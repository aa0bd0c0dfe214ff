"""What a reader of an imported profile should know of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.sources.kineto.entries import ProfiledSteps
from presim.sources.kineto.events import RECURRING, WHOLE, Profile
from presim.sources.kineto.profile_steps import Window
from presim.trace.schema import Group

REPEATED = 3  # repetitions of a single step, so that work overlapping the next step is counted
_CUT = 0.02  # share of the step; larger unexplained pauses are reported
_STEP_MARKS = {  # what a profile lacks that marks no steps
    "kineto": "prof.step() was not called",
    "nsys": "no NVTX range is named like 'step 12'",
    "rocpd": "no ROCTX range is named like 'step 12'",
}
_SHAPES = {
    "kineto": "record_shapes=True",
    "nsys": "Nsight Systems records none",
    "rocpd": "rocprofv3 records none",
}


@dataclasses.dataclass(frozen=True)
class ProfiledRank:
    """A rank's profile, with what of it becomes the job."""

    rank: int
    profile: Profile
    window: Window
    steps: ProfiledSteps
    groups: tuple[Group, ...]


def steps_of(window: Window) -> str:
    """The window's steps in words."""
    first, last = window.numbers[0], window.numbers[-1]
    return f"step {first}" if first == last else f"steps {first} to {last}"


def profile_notes(ranks: Sequence[ProfiledRank], missing: Sequence[int], tool: str) -> list[str]:
    """Sentences about imported profiles. ``missing``: ranks without one. ``tool``: what recorded them."""
    first = ranks[0]
    measured = first.window.measured_ns
    once = len(first.window.numbers) > 1
    notes = [
        f"Imported from {steps_of(first.window)} of {first.profile.path.name}: a step took {measured / 1e6:.3f} ms on "
        f"rank {first.rank}{' in the median' if once else ''}."
        + ("" if once else f" It is repeated {REPEATED} times, so that work overlapping the next step counts."),
        "Profiles contain no allocations: memory is not predicted.",
    ]
    if any(step.name == RECURRING for step in first.profile.steps.values()):
        notes.append(
            f"{first.profile.path.name} marks no steps ({_STEP_MARKS[tool]}): a step is what is launched "
            "again and again."
        )
    if any(step.name == WHOLE for step in first.profile.steps.values()):
        notes.append(f"{first.profile.path.name} marks no steps ({_STEP_MARKS[tool]}): all of it counts as one step.")
    if missing:
        notes.append(
            f"{len(missing)} ranks have no profile and are assumed to behave like the profiled ones; collectives take "
            "as long as on the profiled ranks, including waits."
        )
    unexplained = sum(profiled_rank.steps.unexplained_ns for profiled_rank in ranks) / len(ranks)
    if unexplained > _CUT * measured:
        notes.append(
            f"Pauses of {unexplained / measured:.0%} of the step before kernels have no explanation by a launch, "
            "stream or event in the profile; they are kept unchanged."
        )
    if inferred := sum(profiled_rank.steps.inferred for profiled_rank in ranks):
        notes.append(
            f"{inferred} waits between streams were inferred from kernel times; waits without a delay are unknown"
            + (" (profile with enable_cuda_sync_events=True to have them all)." if tool == "kineto" else ".")
        )
    if nameless := sum(profiled_rank.steps.nameless for profiled_rank in ranks):
        notes.append(f"{nameless} NCCL kernels have no sizes in the profile: they keep the measured time.")
    if not any(operator.args.get("Input Dims") for operator in first.profile.operators.values()) and not any(
        "presim signature" in event.args for event in first.profile.work[:50]
    ):
        notes.append(
            f"The profile has no shapes ({_SHAPES[tool]}): on another GPU kernels are priced by datasheet rates, "
            "± 50 %."
        )
    return notes
