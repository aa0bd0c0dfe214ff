"""Predict a plan: by a framework's own program, or by the eager layers of the model's graph (`presim compose`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from presim.errors import CaptureError, InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import EvaluationOptions
from presim.verbs.compose import compose_and_evaluate
from presim.verbs.compose_framework import capture_plan_and_evaluate

if TYPE_CHECKING:
    from presim.composition.plan import Plan
    from presim.verbs.run import Progress

AUTO = "auto"


def predict_plan(
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    options: EvaluationOptions,
    *,
    framework: str = AUTO,
    precision: str | None = None,
    overrides: Sequence[str] = (),
    dtype: str | None = None,
    simulates_all: bool = True,
    save: str | os.PathLike[str] | None = None,
    notes: Sequence[str] = (),
    progress: Progress = lambda text: None,
) -> Evaluation:
    """Evaluate a plan as a framework runs it, or as the eager layers of a model's graph.

    ``framework``: one of `presim.composition.frameworks.framework_choice.FRAMEWORKS`, ``eager``, or ``auto``: the one
    that the plan needs. If ``auto`` finds that it cannot run the plan, eager layers answer, and a note says why.
    ``precision``, ``overrides``: of the framework's program. ``dtype``: of the graph; None: bfloat16.
    ``simulates_all``: see `capture_plan_and_evaluate`. ``notes``: sentences for the result, before others.

    Raises:
        InputError: the model or the plan cannot be, or an option is of the other way to answer.
        CaptureError: the named framework's program cannot be run here.
    """
    from presim.composition.frameworks.framework_choice import EAGER

    needed = _framework(plan, named_fields, framework, precision, overrides, dtype)
    if needed != EAGER:
        try:
            return capture_plan_and_evaluate(
                model,
                plan,
                named_fields,
                options,
                framework=needed,
                precision=precision or "bf16",
                overrides=overrides,
                simulates_all=simulates_all,
                save=save,
                notes=notes,
                progress=progress,
            )
        except (InputError, CaptureError) as refusal:
            if framework != AUTO or precision is not None or overrides:
                raise
            reason = str(refusal).partition(";")[0]  # without what to do next
            notes = [*notes, f"Composed from eager layers, because Megatron cannot run this plan here: {reason}."]
            progress("composing eager layers instead")
    return compose_and_evaluate(model, plan, options, dtype=dtype or "bfloat16", save=save, notes=notes)


def _framework(
    plan: Plan,
    named_fields: Collection[str],
    framework: str,
    precision: str | None,
    overrides: Sequence[str],
    dtype: str | None,
) -> str:
    """The framework to capture, or ``eager``; refuses options of the other way to answer."""
    from presim.composition.frameworks.framework_choice import EAGER, framework_needed

    is_of_program = precision is not None or bool(overrides)
    if framework == EAGER and is_of_program:
        raise InputError(
            "--precision and --framework-args are of a framework's program: leave out --framework eager, or name "
            "megatron, torchtitan, hf or deepspeed"
        )
    if dtype is not None and (is_of_program or framework not in (AUTO, EAGER)):
        raise InputError("--dtype is of a graph's eager layers, and a framework's program has --precision: use one")
    if framework != AUTO:
        return framework
    if precision is not None:
        return "megatron"  # the precisions are Transformer Engine's
    needed = EAGER if dtype is not None else framework_needed(plan, named_fields)
    if needed == EAGER and overrides:
        raise InputError("--framework-args: say whose, with --framework megatron, torchtitan, hf or deepspeed")
    return needed
