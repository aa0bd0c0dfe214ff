"""``presim calibrate``: correct predictions with a serving benchmark or a measured training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from presim.cli.engine_options import ENGINE
from presim.cli.fleet_options import ENGINES_TOGETHER
from presim.cli.numbers import number
from presim.cli.option_groups import add_options, pop_options
from presim.cli.options import PRICES, cluster_options
from presim.cli.report_options import Report, report_options
from presim.cli.verb import VerbGroup
from presim.system.interrupts import noted
from presim.units import quantities

_WHOLE = "nothing is written, because the calibration was not fitted to its end"


@click.group("calibrate", cls=VerbGroup)
def command() -> None:
    """Correct predictions with your own measurement."""


@command.command("serving")
@click.argument("model")
@click.option(
    "--from",
    "result",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="JSON of vllm bench serve.",
)
@click.option("--gpu", required=True, metavar="ID", help="GPU by catalogue id, or a TOML file.")
@add_options(ENGINE, ENGINES_TOGETHER)
@PRICES
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("overheads.json"),
    show_default=True,
    metavar="FILE",
    help="Result, for --overheads.",
)
@report_options
def serving(model: str, result: Path, gpu: str, out: Path, prices: tuple[str, ...], **options: Any) -> None:
    """Fit step times and the time before the first token of MODEL to a benchmark, for `presim serve --overheads`."""
    from presim.cost.estimators import notes
    from presim.hardware.cluster_choice import choose_cluster
    from presim.report.rendering import json_text
    from presim.serving import calibrate
    from presim.serving.model_lookup import find
    from presim.serving.serving_options import EngineOptions, EnginesOptions
    from presim.serving.serving_plan import ServingPlan
    from presim.serving.steps.times import PricedEngine, build
    from presim.system.files import check_writable
    from presim.verbs.serve import engines_of, plan_of, prefill_plan_of

    delivery = Report.pop_from(options)
    check_writable(out)
    shape = find(model)
    plan = plan_of(pop_options(EngineOptions, options), shape, choose_cluster(gpu=gpu, world_size=1).gpu)
    plan.check(shape)

    def build_engine(plan: ServingPlan) -> PricedEngine:
        return build(shape, plan, choose_cluster(gpu=gpu, world_size=plan.gpus), prices=tuple(map(Path, prices)))

    engines = pop_options(EnginesOptions, options)
    deployment = engines_of(engines, build_engine(plan), lambda: build_engine(prefill_plan_of(engines, plan)))
    with noted(_WHOLE):
        calibration = calibrate.calibrate(deployment, calibrate.read_result(result))
    remarks = list(notes(deployment.engine.cluster.gpu, deployment.engine.prices))
    calibrate.write(calibration, out, remarks)
    content = calibrate.document(calibration, out, remarks)
    delivery.deliver("serving-calibration", content, json_text(content))


@command.command("job")
@click.argument("run", nargs=-1, required=True, metavar="RUN...")
@click.option("--trace", metavar="DIR", help="The same job as presim captured it (`presim run --save DIR`).")
@cluster_options
@click.option(
    "--change",
    type=click.Choice(("arithmetic", "memory", "nvlink", "network", "host")),
    help="The quantity that a single step time corrects. Default: the one that affects the step most.",
)
@click.option(
    "--step", type=number(quantities.STEPS), metavar="N", help="Step of a profile. Default: all consecutive steps."
)
@click.option(
    "--missing",
    type=click.Choice(("refuse", "same")),
    default="refuse",
    help="Same as in `presim import`.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="A new cluster file.")
@report_options
def job(
    run: tuple[str, ...],
    trace: str | None,
    change: Any,
    step: int | None,
    missing: Any,
    out: Path,
    **options: Any,
) -> None:
    """Fit a cluster description to your own RUN and write a new file for --cluster.

    RUN is a trace of PyTorch's profiler (one file per rank), a log with step times, or the seconds of a step. A profile
    corrects the GPU's rates and bandwidths, and with --trace the host overhead; a step time corrects one of these. With
    --trace, the memory peaks of a profile (profile_memory=True) are shown beside the predicted ones.
    """
    from presim.evaluation.options import ClusterOptions
    from presim.studies.calibrate import calibration_text as report
    from presim.studies.calibrate import parts
    from presim.studies.calibrate.correct_cluster import calibrate_job

    delivery = Report.pop_from(options)
    parts.check_new(out)
    with noted(_WHOLE):
        calibration = calibrate_job(
            run, ClusterOptions(**options), trace=trace, change=change, step=step, missing=missing
        )
    parts.write(calibration.cluster, out, f"presim calibrate job {' '.join(Path(path).name for path in run)}")
    content = report.report(calibration, str(out))
    delivery.deliver("calibration", content, report.encode(content))
