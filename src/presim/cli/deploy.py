"""``presim deploy``: find the deployment of a model with the most throughput within an SLO, and write launch files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim import quantities
from presim.cli.numbers import number
from presim.cli.options import PRICES
from presim.cli.serving_options import WEIGHTS

if TYPE_CHECKING:
    from presim.serving.deployments.capacity import Load
    from presim.serving.deployments.ranking import Outcome
    from presim.serving.launching.launch_set import RouterProgram
    from presim.serving.workloads.workload import Workload


@click.command("deploy")
@click.argument("model")
@click.option("--gpu", "gpus", multiple=True, required=True, metavar="ID", help="GPU to consider; repeatable.")
@click.option("--input", "prompt", default="1024", show_default=True, help="Prompt tokens: N, N~SPREAD or a file.")
@click.option("--output", default="256", show_default=True, help="Output tokens: N, N~SPREAD or a file.")
@click.option(
    "--slo",
    multiple=True,
    metavar="METRIC:MS",
    help="ttft:500 or tpot:50, at p99 unless e.g. tpot:50@p90 or tpot:50@mean; repeatable.",
)
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
    "--write",
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files that start, measure and explain the best.",
)
@click.option(
    "--router",
    type=click.Choice(("vllm", "sglang", "dynamo")),
    help="Router before several engines in these files; default: the engine's own.",
)
def command(model: str, gpus: tuple[str, ...], **options: Any) -> int:
    """Find the deployment of MODEL with the highest throughput per GPU within an SLO.

    Plans are estimated in closed form. Those that may be best are simulated request by request, with arrivals at a
    rate: the largest within the SLO is sought. --write receives all that starts and measures the best. Exit code 4:
    none meets the SLO.
    """
    from presim.errors import ExitCode
    from presim.serving.answer import metrics
    from presim.serving.deployments import capacity, record, search
    from presim.serving.deployments.advice import advice
    from presim.serving.deployments.ranking import Ranking, rank
    from presim.serving.model import find

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
    load = capacity.load_of(_workload(options), slo)
    tokens = round(float(load.workload.prompt.mean())), max(round(load.output), 1)
    longest = int((load.workload.prompt + load.workload.output).max())
    shape = find(model)
    estimated = search.search(shape, space, *tokens, slo, longest=longest)
    ranking = Ranking((), 0, True) if estimated.partial else rank(estimated, load)
    if options["folder"] is not None and ranking.best is not None and not ranking.partial:
        _write(options["folder"], model, ranking.best, load, options["router"])
    nearest = None if ranking.partial else ranking.nearest
    sentences = advice(nearest, shape, space, *tokens, slo) if nearest else []
    answer = record.document(estimated, ranking, slo, sentences)
    if options["json_file"]:
        from presim.cli.serve import deliver

        deliver(record.encode(answer), options["json_file"])
    if options["json_file"] != "-":
        click.echo(record.text(answer))
    return int(ExitCode.STANDS if ranking.best or ranking.partial else ExitCode.DOES_NOT_FIT)


def _workload(options: dict[str, Any]) -> Workload:
    """The requests of a simulation; they arrive at 1/s."""
    from presim.serving.deployments.capacity import MOST_REQUESTS
    from presim.serving.workloads.generate import Recipe, generate, lengths_of

    return generate(Recipe(MOST_REQUESTS, lengths_of(options["prompt"]), lengths_of(options["output"]), rate=1.0))


def _write(folder: Path, word: str, best: Outcome, load: Load, router: RouterProgram | None) -> None:
    """The files of a deployment, with a benchmark at the rate that it serves."""
    from presim.serving.deployments.ranking import deployment_of
    from presim.serving.launching.bench import benchmark
    from presim.serving.launching.folder import DeploymentFolder, write
    from presim.serving.launching.launch_set import launch_set_of

    assert best.trial is not None  # of every deployment that meets an SLO
    deployment = deployment_of(best.point)
    bench = benchmark(deployment, load, best.trial.rate, best.trial.in_flight)
    launch_set = launch_set_of(best.point, word, router)
    write(DeploymentFolder(word, best.point.name, launch_set, deployment, bench, load.slo), folder)
