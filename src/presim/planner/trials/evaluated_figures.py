"""The figures of an evaluation that a search compares, and the reply that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from presim.errors import CaptureError
from presim.planner.trials.trial import Figures
from presim.planner.trials.trial_messages import Reply

if TYPE_CHECKING:
    from presim.evaluation.evaluate_traces import Evaluation

Source = Literal["composed", "captured", "framework", "extended"]
_WORDS = 400  # longest failure text, in characters


def reply_of(evaluation: Evaluation, source: Source) -> Reply:
    """The figures of what was captured, or why it has none."""
    result = evaluation.result
    if result.exit == "out_of_memory" and result.step_time_s is None:
        return Reply(fate="failed", figures=None, words=short_text(f"does not fit: {result.error}"))
    if result.exit in ("raised", "exited", "killed") or result.step_time_s is None:
        return Reply(fate="failed", words=short_text(result.error or f"the script ended early ({result.exit})"))
    return Reply(fate="priced", figures=figures(evaluation, source))


def figures(evaluation: Evaluation, source: Source) -> Figures:
    """Extract the figures that a search compares.

    Raises:
        CaptureError: no step was timed.
    """
    result = evaluation.result
    time, memory, job = result.time, result.memory, result.job
    if result.step_time_s is None:
        raise CaptureError("no step was timed")
    rate = result.throughput.tokens_per_s
    kinds = evaluation.cluster.gpus_by_kind()
    return Figures(
        gpu=job.gpu,
        gpus=job.world_size,
        gpus_by_kind=kinds if len(kinds) > 1 else {},
        step_time_s=result.step_time_s,
        low_s=result.step_time_low_s or result.step_time_s,
        high_s=result.step_time_high_s or result.step_time_s,
        tokens_per_step=rate * result.step_time_s if rate else None,
        mfu=result.mfu,
        fits=memory.fits,
        memory_bytes=memory.device_total_bytes - memory.headroom_bytes - (memory.requested_bytes or 0),
        headroom_bytes=memory.headroom_bytes,
        compute_s=time.compute_s,
        communication_s=time.communication_s,
        exposed_communication_s=time.exposed_communication_s,
        host_bound_s=time.host_bound_s,
        idle_s=time.idle_s,
        joules=result.energy.joules if result.energy is not None else None,
        limits=[limit.name for limit in result.limits[:3]],
        by_category={category.name: category.bytes for category in memory.by_category},
        source=source,
    )


def short_text(error: object) -> str:
    """A failure in one line, cut to what a ledger shows."""
    text = " ".join(str(error).split())
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 2]} …"
