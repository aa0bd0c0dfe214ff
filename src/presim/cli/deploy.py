"""``presim deploy``: find the deployment of a model with the most throughput within an SLO, and write launch files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim.cli.numbers import number
from presim.cli.options import PRICES
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.serving_options import WEIGHTS
from presim.cli.verb import Verb
from presim.units import quantities

if TYPE_CHECKING:
    from presim.serving.answer.metrics import Slo
    from presim.serving.deployments.capacity import OfferedLoad
    from presim.serving.deployments.demand import Demand
    from presim.serving.deployments.deployment_search import Space

_MOST_GPUS = 16  # of a deployment, unless the user says otherwise


@click.command("deploy", cls=Verb)
@click.argument("model")
@click.option("--gpu", "gpus", multiple=True, required=True, metavar="ID", help="GPU to consider; repeatable.")
@click.option("--input", "prompt", help="Prompt tokens: N, N~SPREAD or a file; default: 1024.")
@click.option("--output", help="Output tokens: N, N~SPREAD or a file; default: 256.")
@click.option("--trace", type=click.Path(path_type=Path), help="Public request trace: its lengths and gaps are taken.")
@click.option(
    "--shared-prefix", type=number(quantities.PREFIX), default=0, help="Tokens that prompts share, beside --input."
)
@click.option("--groups", type=number(quantities.GROUPS), default=1, help="Groups of prompts that share a prefix.")
@click.option(
    "--slo",
    multiple=True,
    metavar="METRIC:MS",
    help="ttft:500, tpot:50 or e2el:5000, at p99 unless e.g. tpot:50@p90 or tpot:50@mean; repeatable.",
)
@click.option(
    "--max-gpus", type=number(quantities.GPUS), help="Most GPUs of a deployment that is searched; default: 16."
)
@click.option("--total-gpus", type=number(quantities.GPUS), help="Find the best use of so many GPUs.")
@click.option("--rate", type=number(quantities.RATE), help="Requests/s to serve with the fewest GPUs, or least money.")
@click.option("--max-price", "hourly", type=number(quantities.PRICE), help="Most money an hour.")
@click.option("--max-cost", "cost", type=number(quantities.PRICE), help="Most money for a million output tokens.")
@click.option("--max-power", metavar="POWER", help="Most power to provide, e.g. 40kW: GPUs' limits and nodes' parts.")
@click.option("--price-per-gpu-hour", "gpu_prices", multiple=True, metavar="[GPU=]PRICE", help="Repeatable.")
@click.option("--weights", multiple=True, type=WEIGHTS, help="Types to try.")
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(("vllm", "sglang")), help="Engines to try; default: vllm."
)
@click.option("--engine-version", metavar="VERSION", help="Version of the engine; default: the newest that is known.")
@click.option(
    "--kv",
    "caches",
    multiple=True,
    type=click.Choice(("bf16", "fp8")),
    help="KV types to try; default: the checkpoint's.",
)
@click.option(
    "--speculative", type=click.Choice(("mtp", "ngram")), help="Speculative decoding by vLLM without another model."
)
@click.option("--draft-tokens", type=number(quantities.DRAFT_TOKENS), default=1, show_default=True)
@click.option("--acceptance", type=number(quantities.SHARE), help="Probability that a drafted token is accepted.")
@click.option("--overheads", type=click.Path(path_type=Path), help="File from `presim calibrate serving`.")
@PRICES
@click.option("--no-disaggregation", is_flag=True, help="Do not separate prefill from decode.")
@json_option
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the simulated plans as CSV."
)
@html_option
@click.option(
    "--write",
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the files that start, measure and explain the best.",
)
@click.option(
    "--router",
    type=click.Choice(("vllm", "sglang", "dynamo")),
    help="Router before several engines in these files; default: the engine's own.",
)
@quiet_option
def command(model: str, gpus: tuple[str, ...], **options: Any) -> int:
    """Find the deployment of MODEL with the highest throughput per GPU within an SLO.

    Plans are estimated in closed form. Those that may be best are simulated request by request, with arrivals at a
    rate: the largest within the SLO is sought. --write receives all that starts and measures the best. Exit code 4:
    none meets the SLO.
    """
    from presim.cli.progress import progress
    from presim.errors import ExitCode
    from presim.serving.answer import metrics
    from presim.serving.deployments import deployment_page, deployment_record
    from presim.system.files import check_folder, check_writable, write_file
    from presim.verbs.deploy import DeploymentQuestion, decide, write_files

    for name in ("json_file", "csv_file", "html"):
        if options[name] is not None and options[name] != "-":
            check_writable(options[name])
    if options["folder"] is not None:
        check_folder(options["folder"])
    slo = metrics.slo_of([limit for words in options["slo"] for limit in words.split()])
    demand = _demand(options, gpus)
    question = DeploymentQuestion(model, _space(options, gpus), _load(options, slo), demand)
    with progress(lines=True) as say:
        decision = decide(question, say)
    if options["folder"] is not None and decision.answer is not None:
        write_files(decision, options["folder"], options["router"])
    if options["json_file"]:
        from presim.cli.serve import deliver

        deliver(deployment_record.encode(decision.document), options["json_file"])
    if options["csv_file"]:
        write_file(options["csv_file"], deployment_record.table(decision.document))
    if options["html"]:
        write_file(options["html"], deployment_page.render(decision.document).encode())
    if not options["quiet"] and options["json_file"] != "-":
        click.echo(deployment_record.text(decision.document))
    return int(ExitCode.STANDS if decision.is_reached else ExitCode.DOES_NOT_FIT)


def _demand(options: dict[str, Any], gpus: tuple[str, ...]) -> Demand:
    from presim.errors import InputError
    from presim.serving.deployments.demand import Demand, price_of, watts_of

    power_w = watts_of(options["max_power"]) if options["max_power"] else None
    prices = dict(map(price_of, options["gpu_prices"]))
    demand = Demand(options["rate"], options["total_gpus"], options["hourly"], power_w, options["cost"], prices)
    demand.check(gpus)
    if options["total_gpus"] and options["max_gpus"] and options["max_gpus"] > options["total_gpus"]:
        raise InputError(
            f"--max-gpus {options['max_gpus']} for one deployment exceeds --total-gpus {options['total_gpus']}; leave "
            "out one of them"
        )
    return demand


def _space(options: dict[str, Any], gpus: tuple[str, ...]) -> Space:
    from presim.errors import InputError
    from presim.serving.deployments.deployment_search import Space
    from presim.serving.drafting import drafting_of
    from presim.serving.steps import overheads

    if options["speculative"] and "sglang" in options["engines"]:
        raise InputError("--speculative is searched for vLLM alone: leave out --engine sglang")
    return Space(
        gpus,
        weights=options["weights"] or (None, "fp8"),
        most_gpus=options["max_gpus"] or min(options["total_gpus"] or _MOST_GPUS, _MOST_GPUS),
        engines=options["engines"] or ("vllm",),
        disaggregated=not options["no_disaggregation"],
        caches=options["caches"],
        drafting=drafting_of(options["speculative"], options["draft_tokens"], options["acceptance"], None),
        engine_version=options["engine_version"],
        cached=options["shared_prefix"] // 16 * 16,
        overheads=overheads.read(options["overheads"]) if options["overheads"] else None,
        prices=tuple(map(Path, options["prices"])),
    )


def _load(options: dict[str, Any], slo: Slo) -> OfferedLoad:
    """The requests of a simulation; they arrive at 1/s."""
    from presim.errors import InputError
    from presim.serving.deployments.capacity import BLOCK, MOST_REQUESTS, load_of
    from presim.serving.workloads.generate import WorkloadRecipe, generate, lengths_of
    from presim.serving.workloads.traces import read_trace

    lengths = lengths_of(options["prompt"] or "1024"), lengths_of(options["output"] or "256")
    if options["trace"] is None:
        shared = {name: options[name] for name in ("shared_prefix", "groups")}
        return load_of(generate(WorkloadRecipe(MOST_REQUESTS, *lengths, rate=1.0, **shared)), slo)
    if options["prompt"] or options["output"] or options["shared_prefix"]:
        raise InputError("--trace has the lengths of requests: leave out --input, --output and --shared-prefix")
    traced = load_of(read_trace(options["trace"], None), slo, BLOCK)
    if not traced.workload.arrival_ns[-1]:
        raise InputError(f"{options['trace']} has no times of arrival: give its lengths as --input and --output")
    return traced.redrawn(0, MOST_REQUESTS)
