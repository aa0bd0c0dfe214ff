"""Two steps of a prediction by operator: one that decodes as the run did on average, and one with a prompt."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from presim.result.serving import StepDetail, StepOperator
from presim.serving.deployments.prediction import Prediction
from presim.serving.steps import step_detail

_SHOWN = 0.005  # share of a step from which on the terminal shows an operator


def of_prediction(prediction: Prediction) -> dict[str, StepDetail]:
    """Two steps by name: decodes as many and as long as on average, and the mean prompt."""
    workload = prediction.workload
    prompt, output = (max(round(float(column.mean())), 1) for column in (workload.prompt, workload.output))
    engine = prediction.deployment.engine
    sequences = round(prediction.inside.get("mean_batch", 1.0)) or 1
    context = min(prompt + output // 2, engine.limits.max_model_len)
    steps = step_detail.document(engine, sequences, context, min(prompt, engine.limits.max_model_len))
    return {
        name: StepDetail(**{**step, "operators": [StepOperator(**operator) for operator in step["operators"]]})
        for name, step in steps.items()
    }


def tables(steps: dict[str, StepDetail]) -> list[RenderableType]:
    """A table for each step, operators below half a percent together."""
    parts: list[RenderableType] = []
    for name, step in steps.items():
        batch_text = f"{step.sequences} sequences, {step.context:,} tokens each"
        shown = batch_text if name == "decode" else f"{step.tokens:,} tokens of a prompt"
        parts += [Text(), Text(f"A {name} step: {shown}; {_times(step)}", style="bold"), _table(step.operators)]
    return parts


def _times(step: StepDetail) -> str:
    return (
        f"{step.device_us / 1e3:,.2f} ms on the device, {step.launch_us / 1e3:,.2f} ms to launch; limited by "
        f"{step.limit}"
    )


def _table(operators: list[StepOperator]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("operator")
    for name in ("calls", "us", "share", "limit", "speed of light", "price"):
        table.add_column(name, justify="left" if name in ("limit", "price") else "right")
    minor_rows = [row for row in operators if row.share < _SHOWN]
    for row in operators:
        if row.share >= _SHOWN:
            numbers = f"{row.calls:,}", f"{row.us:,.1f}", f"{row.share:.1%}"
            table.add_row(row.name, *numbers, row.limit, f"{row.light:.0%}", row.origin)
    if minor_rows:
        calls, us, share = (sum(getattr(row, name) for row in minor_rows) for name in ("calls", "us", "share"))
        table.add_row(f"{len(minor_rows)} others", f"{calls:,}", f"{us:,.1f}", f"{share:.1%}", "", "", "")
    return table
