"""Sentences about what a step is, and how steps differ."""

from __future__ import annotations

from presim.analysis.time.step_spread import UNUSUAL, step_spread, unusual_steps
from presim.analysis.time.steps import TraceSteps
from presim.engine.timeline import Timeline
from presim.result.evaluated_job import UnusualStep
from presim.trace.schema import FAILED, StepFacts, Trace
from presim.units import seconds

_NO_STEP = "No step was completed: the figures cover the run up to the failure."
_WHOLE_RUN = "The script called no optimizer step: the whole run counts as one step."
_MOST_NAMED = 4  # unusual steps in a sentence


def step_notes(trace: Trace, timeline: Timeline, steps: TraceSteps) -> list[str]:
    """What the step of the figures is, whether it is steady, and how others differ from it."""
    if not steps.counted:
        return [_NO_STEP if trace.manifest.exit in FAILED else _WHOLE_RUN]
    facts = trace.manifest.step
    return [*_definition(facts), *_left_out(facts), *_steadiness(steps), *_differences(trace, timeline, steps)]


def _definition(facts: StepFacts) -> list[str]:
    """What a step is, unless it is what everybody expects: an iteration with one update."""
    if facts.launches:
        launches = "1 launch" if facts.launches == 1 else f"{facts.launches} launches"
        return [f"The script calls no module: a step is what it repeats, {launches}."]
    if not facts.loop or (facts.iterations == 1 and facts.updates == 1):
        return []
    shared = f"{facts.iterations} iterations" if facts.iterations > 1 else "an iteration"
    if facts.updates == 0 and not facts.trains:
        update = "the script does not train"
    elif facts.updates == 0 and facts.is_update_missing:
        update = (
            "no optimizer had updated parameters when the capture ended; a step that sums gradients of more iterations "
            "is longer, and --steps 0 runs the script to its end"
        )
    elif facts.updates == 0:
        update = "no optimizer of PyTorch updates most of the parameters in one step"
    else:
        update = f"{facts.updates} optimizer step{'s' * (facts.updates > 1)} in it"
    return [f"A step is {shared} of the loop at {facts.loop}: {update}."]


def _left_out(facts: StepFacts) -> list[str]:
    """Loops that train, too, but whose steps the figures do not describe."""
    if not facts.other_loops or not facts.loop:
        return []
    loops = ", ".join(f"{steps} of the loop at {loop}" for loop, steps in facts.other_loops[:_MOST_NAMED])
    return [f"The figures describe steps of the loop at {facts.loop}; these are not in them: {loops}."]


def _steadiness(steps: TraceSteps) -> list[str]:
    shown = steps.steady_index + 1
    if steps.sets_up:
        return [
            f"Step {shown} is not a steady step: {steps.sets_up} in it. Capture more steps "
            f"(--steps {shown + 2}) to get a steady step."
        ]
    if not steps.is_steady:
        return ["Only one step was captured, so the figures include warm-up. Capture more with --steps 3."]
    return []


def _differences(trace: Trace, timeline: Timeline, steps: TraceSteps) -> list[str]:
    unusual = unusual_steps(trace, timeline, steps) if steps.is_steady else []
    spread = step_spread(steps)
    if not unusual or spread.mean_s is None or spread.min_s is None or spread.max_s is None:
        return []
    times = f"mean {seconds(spread.mean_s)}, {seconds(spread.min_s)} to {seconds(spread.max_s)}"
    shown_s = steps.steps[steps.steady_index].duration_ns / 1e9
    described = f"The figures describe step {steps.steady_index + 1}, which takes {seconds(shown_s)}."
    if steps.added_wait_ns:
        described = (
            f"The figures describe step {steps.steady_index + 1} ({seconds(shown_s)}) with the waiting for data of a "
            f"mean step: {seconds(steps.steady.duration_ns / 1e9)}."
        )
    return [
        f"Steps differ: {times} over {len(steps.repeated)} steps that repeat. {described} {_describe_unusual(unusual)}"
    ]


def _describe_unusual(unusual: list[UnusualStep]) -> str:
    named = [
        f"step {step.index + 1} {seconds(step.time_s)}{f' ({step.reason})' if step.reason else ''}"
        for step in unusual[:_MOST_NAMED]
    ]
    unnamed_count = len(unusual) - len(named)
    unnamed = f", and {unnamed_count} more" if unnamed_count > 0 else ""
    return f"Unusual by a factor of {UNUSUAL:g} or more: {', '.join(named)}{unnamed}."
