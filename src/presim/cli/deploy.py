"""``presim deploy``: find the deployment of a model with the most throughput within an SLO, and write launch files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim import quantities
from presim.cli.numbers import number
from presim.cli.options import PRICES
from presim.cli.serving_options import WEIGHTS

if TYPE_CHECKING:
    from presim.serving.deployments.search import Point


@click.command("deploy")
@click.argument("model")
@click.option("--gpu", "gpus", multiple=True, required=True, metavar="ID", help="GPU to consider; repeatable.")
@click.option(
    "--input", "prompt", type=number(quantities.TOKENS), default=1024, show_default=True, help="Prompt tokens."
)
@click.option("--output", type=number(quantities.TOKENS), default=256, show_default=True, help="Output tokens.")
@click.option("--slo", multiple=True, metavar="METRIC:MS", help="ttft:500 or tpot:50; repeatable.")
@click.option(
    "--max-gpus", type=number(quantities.GPUS), default=16, show_default=True, help="Most GPUs per deployment."
)
@click.option("--weights", multiple=True, type=WEIGHTS, help="Types to try.")
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(("vllm", "sglang")), help="Engines to try; default: vllm."
)
@PRICES
@click.option("--no-disaggregation", is_flag=True, help="Do not separate prefill from decode.")
@click.option("--json", "json_file", metavar="FILE", help="Write the result as JSON; - is standard output.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the launch files.",
)
def command(model: str, gpus: tuple[str, ...], **options: Any) -> None:
    """Find the deployment of MODEL with the highest throughput per GPU within an SLO.

    All plans are ranked by their steady-state throughput; the best are simulated request by request. --out receives
    the command, a Compose file and Kubernetes manifests.
    """
    from presim.serving.answer import metrics
    from presim.serving.deployments import record, search
    from presim.serving.model import find
    from presim.serving.workloads.generate import Lengths, Recipe

    slo = metrics.slo_of(options["slo"])
    if slo.e2el_ms is not None:
        raise click.UsageError("`presim deploy` supports ttft and tpot in --slo; use `presim serve` for e2el")
    space = search.Space(
        gpus,
        weights=options["weights"] or (None, "fp8"),
        most_gpus=options["max_gpus"],
        engines=options["engines"] or ("vllm",),
        disaggregated=not options["no_disaggregation"],
        prices=tuple(map(Path, options["prices"])),
    )
    ranking = search.search(find(model), space, options["prompt"], options["output"], slo)
    recipe = Recipe(1, Lengths(options["prompt"], lowest=0.8), Lengths(options["output"], lowest=0.8))
    points = [] if ranking.partial else record.spread(ranking.pareto, 3)
    confirmed, is_partial = search.confirm_all(points, recipe, slo)
    ranking = dataclasses.replace(ranking, partial=ranking.partial or is_partial)
    if options["out"] is not None and ranking.best is not None and not ranking.partial:
        _write(options["out"], model, ranking.best)
    answer = record.document(ranking, confirmed, slo)
    if options["json_file"]:
        from presim.cli.serve import deliver

        deliver(record.encode(answer), options["json_file"])
    if options["json_file"] != "-":
        click.echo(record.text(answer))


def _write(folder: Path, model: str, best: Point) -> None:
    import dataclasses

    from presim.files import make_folder, write_file
    from presim.serving.deployments import launch as deploy

    make_folder(folder)
    plan = dataclasses.replace(best.engine.plan, max_num_seqs=max(best.batch, 1))
    role = "decode" if best.prefill_replicas else "any"
    write_file(folder / "serve.sh", f"#!/bin/sh\nexec {deploy.command(model, plan, role)}\n".encode())
    write_file(folder / "compose.json", deploy.compose(model, plan, best.replicas, best.prefill_replicas).encode())
    manifests = deploy.kubernetes(model, plan, best.replicas, best.prefill_replicas)
    write_file(folder / "kubernetes.json", manifests.encode())
