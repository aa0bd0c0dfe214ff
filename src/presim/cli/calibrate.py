"""``presim calibrate serving``: correct predictions of a deployment by a benchmark of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from presim.cli.serve import ENGINE, add_options, plan_of


@click.group("calibrate")
def command() -> None:
    """Correct predictions by a measurement of your own."""


@command.command("serving")
@click.argument("model")
@click.option("--from", "result", type=click.Path(path_type=Path), required=True, help="JSON of vllm bench serve.")
@click.option("--gpu", required=True, metavar="ID", help="GPU by catalogue id, or a TOML file.")
@add_options(ENGINE)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("overheads.json"), show_default=True, help="Result."
)
def serving(model: str, result: Path, gpu: str, out: Path, **options: Any) -> None:
    """Fit step times and the time before the first token of MODEL to a benchmark, for `presim serve --overheads`."""
    from presim.files import check_writable
    from presim.hardware.choose import choose_cluster
    from presim.serving import calibrate
    from presim.serving.model import find
    from presim.serving.steps.times import build

    check_writable(out)
    plan, shape = plan_of(options), find(model)
    plan.check(shape)
    engine = build(shape, plan, choose_cluster(gpu=gpu, world_size=plan.gpus))
    found = calibrate.calibrate(engine, calibrate.read_result(result))
    calibrate.write(found, out)
    click.echo(
        f"{out}: steps x {found.overheads.step_scale:.3f}, {found.overheads.input_us / 1e3:.1f} ms before the queue"
    )
    for key, measured in found.measured.items():
        click.echo(f"  {key}: measured {measured:.4g}, before {found.before[key]:.4g}, after {found.after[key]:.4g}")
