"""``presim deploy``: find the deployment of a model with the most throughput within an SLO, and write launch files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim.cli.engine_options import WEIGHTS
from presim.cli.numbers import number
from presim.cli.options import PRICES
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.verb import Verb
from presim.units import quantities

if TYPE_CHECKING:
    from presim.serving.launching.launch_set import RouterProgram


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """Files to write, and what is printed."""

    json_file: str | None  # - is standard output
    csv_file: Path | None
    html: str | None
    folder: Path | None
    router: RouterProgram | None
    quiet: bool


@click.command("deploy", cls=Verb)
@click.argument("model")
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    required=True,
    metavar="ID",
    help="GPU to consider; repeatable: prefill and decode may then have GPUs of their own.",
)
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
    help="Limit of latency, e.g. ttft:500, tpot:50 or e2el:5000, at p99 unless e.g. tpot:50@p90 or tpot:50@mean; "
    "repeatable.",
)
@click.option(
    "--max-gpus", type=number(quantities.GPUS), help="Most GPUs of a deployment that is searched; default: 16."
)
@click.option("--total-gpus", type=number(quantities.GPUS), help="Find the best use of so many GPUs.")
@click.option("--rate", type=number(quantities.RATE), help="Requests/s to serve with the fewest GPUs, or least money.")
@click.option("--max-price", "hourly", type=number(quantities.PRICE), help="Most money an hour.")
@click.option("--max-cost", "cost", type=number(quantities.PRICE), help="Most money for a million output tokens.")
@click.option("--max-power", metavar="POWER", help="Most power to provide, e.g. 40kW: GPUs' limits and nodes' parts.")
@click.option(
    "--price-per-gpu-hour",
    "gpu_prices",
    multiple=True,
    metavar="[GPU=]PRICE",
    help="Price of a GPU hour, or GPU=PRICE of one kind. Repeatable.",
)
@click.option("--weights", multiple=True, type=WEIGHTS, help="Types to try.")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="NAME[@VERSION]",
    help="Engine to try: vllm, sglang, trtllm or e.g. vllm@0.19; repeatable; default: vllm.",
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
    "--kv-host",
    multiple=True,
    type=number(quantities.GIB),
    help="GiB of host memory of an engine for cached KV blocks, to try; 0: none.",
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
    type=click.Choice(("vllm", "sglang", "dynamo", "llm-d")),
    help="Router before several engines in these files; default: the engine's own.",
)
@quiet_option
def command(model: str, **options: Any) -> int:
    """Find the deployment of MODEL with the highest throughput per GPU within an SLO.

    Plans are estimated in closed form. Those that may be best are simulated request by request, with arrivals at a
    rate: the largest within the SLO is sought. --write receives all that starts and measures the best. Exit code 4:
    none meets the SLO.
    """
    from presim.cli.option_groups import pop_options
    from presim.cli.progress import progress
    from presim.errors import ExitCode
    from presim.serving.deployments import deployment_page, deployment_record, report_lines
    from presim.serving.deployments.question import DemandOptions, RequestOptions, SpaceOptions, question_of
    from presim.serving.launching.arguments import refuse_engines_without_files
    from presim.system.files import check_folder, check_writable, write_file
    from presim.system.interrupts import noted
    from presim.verbs.deploy import decide, write_files

    space, requests = pop_options(SpaceOptions, options), pop_options(RequestOptions, options)
    demand = pop_options(DemandOptions, options)
    outputs = Outputs(**options)
    for path in (outputs.json_file, outputs.csv_file, outputs.html):
        if path is not None and path != "-":
            check_writable(path)
    if outputs.folder is not None:
        check_folder(outputs.folder)
        refuse_engines_without_files(space.engines)
    question = question_of(model, space, requests, demand)
    with progress(lines=True) as say, noted("nothing is written, because no deployment was simulated to its end"):
        decision = decide(question, say)
    if outputs.json_file:
        from presim.cli.serve import deliver

        deliver(deployment_record.encode(decision.result), outputs.json_file)
    if outputs.csv_file:
        write_file(outputs.csv_file, deployment_record.table(decision.result))
    if outputs.html:
        write_file(outputs.html, deployment_page.render(decision.result).encode())
    if not outputs.quiet and outputs.json_file != "-":
        click.echo(report_lines.text(decision.result))
    if outputs.folder is not None and decision.answer is not None:
        write_files(decision, outputs.folder, outputs.router)  # last: a router may not take the answer's engines
    return int(ExitCode.STANDS if decision.is_reached else ExitCode.DOES_NOT_FIT)
