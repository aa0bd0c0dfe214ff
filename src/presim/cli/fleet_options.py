"""Options of several serving engines together: how many, what they share and cost, how they come and go."""

from __future__ import annotations

from pathlib import Path

import click

from presim.cli import completion
from presim.cli.numbers import number
from presim.cli.options import PRICES
from presim.units import quantities

ENGINES_TOGETHER = (
    click.option(
        "--replicas", type=number(quantities.ENGINES), default=1, show_default=True, help="Number of engines."
    ),
    click.option(
        "--prefill-replicas", type=number(quantities.ENGINES_OR_NONE), default=0, help="Prefill-only engines."
    ),
    click.option("--prefill-tp", type=number(quantities.DEGREE), help="Their tensor-parallel size; default: --tp."),
    click.option(
        "--kv-shared",
        type=number(quantities.GIB),
        default=0.0,
        help="GiB of a pool of cached KV blocks that all engines share.",
    ),
    click.option(
        "--kv-shared-bandwidth",
        type=number(quantities.GBPS),
        help="GB/s of the pool's own links; default: only those of engines limit it.",
    ),
    click.option(
        "--router",
        type=click.Choice(("round-robin", "least-loaded", "power-of-two", "prefix", "session")),
        default="round-robin",
        show_default=True,
        help="Load-balancing policy between engines.",
    ),
)
FLEET = (
    *ENGINES_TOGETHER,
    click.option(
        "--prefill-gpu", metavar="ID", help="Another GPU of prefill-only engines.", shell_complete=completion.gpus
    ),
    click.option("--overheads", type=click.Path(path_type=Path), help="File from `presim calibrate serving`."),
    PRICES,
    click.option(
        "--steps",
        default="composed",
        show_default=True,
        metavar="HOW",
        help="Step times: composed; captured from vLLM's model runner; or the folder of a captured set.",
    ),
    click.option(
        "--slo",
        multiple=True,
        metavar="METRIC:MS",
        help="Limit of latency, e.g. ttft:500, tpot:50@p90 or e2el:5000@mean; the percentile is --slo-percentile "
        "unless named; repeatable.",
    ),
    click.option("--price-per-gpu-hour", type=number(quantities.PRICE), help="Price per GPU hour."),
    click.option("--price-per-kwh", type=number(quantities.PRICE), help="Price per kWh."),
    click.option(
        "--slo-percentile",
        type=number(quantities.PERCENTILE),
        default=99.0,
        show_default=True,
        help="Percentile of requests that must meet the SLO.",
    ),
)


LIFE = (
    click.option(
        "--autoscale", metavar="MIN:MAX", help="Autoscale between MIN and MAX engines, instead of --replicas."
    ),
    click.option(
        "--scale-on",
        type=click.Choice(("utilization", "queue")),
        default="utilization",
        show_default=True,
        help="Signal: requests per engine relative to --max-num-seqs, or waiting requests.",
    ),
    click.option(
        "--scale-target",
        type=number(quantities.SCALE_TARGET),
        help="Target of the signal per engine; default: utilization 0.7, queue 4.",
    ),
    click.option(
        "--scale-interval",
        type=number(quantities.POSITIVE_SECONDS),
        default=15.0,
        show_default=True,
        help="Seconds between decisions of the autoscaler.",
    ),
    click.option(
        "--cooldown",
        type=number(quantities.SECONDS),
        default=300.0,
        show_default=True,
        help="Seconds that fewer engines must suffice before one is removed.",
    ),
    click.option(
        "--start-up",
        type=number(quantities.SECONDS),
        default=120.0,
        show_default=True,
        help="Seconds to start an engine.",
    ),
    click.option(
        "--drain",
        type=number(quantities.SECONDS),
        help="Seconds a removed engine may finish requests; default: until all are done.",
    ),
    click.option("--mtbf", type=number(quantities.HOURS), help="Hours between failures of an engine."),
    click.option(
        "--on-failure",
        type=click.Choice(("resume", "restart", "lose")),
        default="resume",
        show_default=True,
        help="Requests of a failed engine keep their tokens, restart, or are lost.",
    ),
    click.option(
        "--detect", type=number(quantities.SECONDS), default=5.0, show_default=True, help="Seconds to detect a failure."
    ),
)
