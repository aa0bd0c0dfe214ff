"""Options of the load that engines serve: lengths, arrivals, prefixes and files."""

from __future__ import annotations

from pathlib import Path

import click

from presim.cli.numbers import number
from presim.units import quantities

LOAD = (
    click.option("--rate", type=number(quantities.RATE), help="Requests per second; default: all at once."),
    click.option(
        "--concurrency", type=number(quantities.CONCURRENCY), default=0, help="Most requests in flight; 0: no limit."
    ),
    click.option(
        "--requests", type=number(quantities.REQUESTS), help="Number of requests; default: 1000, or all of a trace."
    ),
    click.option("--input", "prompt", default="1024", show_default=True, help="Prompt tokens: N, N~SPREAD or a file."),
    click.option("--output", default="256", show_default=True, help="Output tokens, in the same notation."),
    click.option(
        "--arrivals",
        type=click.Choice(("poisson", "gamma", "constant", "burst", "ramp")),
        default="poisson",
        show_default=True,
        help="Arrival process of requests.",
    ),
    click.option("--burstiness", type=number(quantities.BURSTINESS), default=1.0, help="For gamma arrivals."),
    click.option("--burst", type=number(quantities.BURST), default=8, help="Requests per burst."),
    click.option("--ramp-to", type=number(quantities.RATE), help="Rate at the end of a ramp."),
    click.option(
        "--shared-prefix", type=number(quantities.PREFIX), default=0, help="Tokens that prompts of a group share."
    ),
    click.option("--groups", type=number(quantities.GROUPS), default=1, help="Groups that share a prefix."),
    click.option("--turns", type=number(quantities.TURNS), default=1, help="Turns per conversation."),
    click.option("--think", "think_s", type=number(quantities.SECONDS), default=0.0, help="Seconds between turns."),
    click.option(
        "--adapters", type=number(quantities.ADAPTERS), default=0, help="LoRA adapters to spread requests over."
    ),
    click.option(
        "--structured", type=number(quantities.SHARE), default=0.0, help="Share of requests with structured output."
    ),
    click.option(
        "--grammar-ms",
        type=number(quantities.MILLISECONDS),
        default=50.0,
        show_default=True,
        help="Time to compile a grammar.",
    ),
    click.option("--seed", type=number(quantities.SEED), default=0, show_default=True, help="Random seed."),
    click.option("--trace", type=click.Path(path_type=Path), help="Public request trace to replay."),
    click.option(
        "--trace-unit", type=click.Choice(("s", "ms")), help="Unit of the trace's timestamps; default: as it shows."
    ),
    click.option(
        "--trace-block-tokens",
        type=number(quantities.BLOCK_TOKENS),
        help="Tokens that a hash_id of the trace stands for; default: as it shows.",
    ),
    click.option(
        "--budget",
        metavar="TIME,MEMORY",
        help="Refuse a load whose simulation would take more, e.g. 2h,32GiB; default: 10min,8GiB.",
    ),
    click.option("--workload", "saved", type=click.Path(path_type=Path), help="Workload file from --save-workload."),
    click.option("--save-workload", type=click.Path(path_type=Path), help="Save the workload to a file."),
)
