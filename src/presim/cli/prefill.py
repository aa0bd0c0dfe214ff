"""``presim prefill``: plan over which ranks the prompts of a batch are split."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim.cli.engine_options import WEIGHTS
from presim.cli.numbers import number
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.verb import Verb
from presim.errors import ExitCode, InputError
from presim.system.interrupts import caught, noted
from presim.units import quantities

if TYPE_CHECKING:
    from presim.composition.models.description import Model
    from presim.hardware import Cluster
    from presim.serving.prompts.prefill import Prefilled
    from presim.serving.prompts.split_options import SplitOptions
    from presim.serving.serving_plan import ServingPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """Files to write, and what is printed."""

    json_file: str | None  # - is standard output
    html: Path | None
    quiet: bool


@click.command("prefill", cls=Verb)
@click.argument("model")
@click.option("--gpu", required=True, metavar="ID", help="GPU by catalogue id, e.g. h100-sxm, or a TOML file.")
@click.option("--node", metavar="ID", help="Node type; default: the GPU's usual one.")
@click.option("--fabric", metavar="ID", help="Fabric; default: the node type's usual one.")
@click.option("--sp", "ranks", type=number(quantities.SPLIT_RANKS), required=True, help="Ranks that split prompts.")
@click.option(
    "--tp", type=number(quantities.DEGREE), default=1, show_default=True, help="GPUs of each rank: tensor parallelism."
)
@click.option("--weights", type=WEIGHTS, help="Data type of the weights; default: the checkpoint's own.")
@click.option("--lengths", metavar="N,N,… or FILE", help="Tokens of the prompts of a batch, or a file of numbers.")
@click.option("--trace", type=click.Path(path_type=Path), help="Public request trace; its prompts come in batches.")
@click.option("--requests", type=number(quantities.REQUESTS), help="Prompts to take of a trace; default: all.")
@click.option(
    "--budget",
    type=number(quantities.TOKENS),
    help="Most tokens of a batch; default: of --lengths all, of a trace 65536.",
)
@click.option(
    "--work-budget", metavar="TIME", help="Refuse prompts that would take longer to plan, e.g. 2h; default: 10min."
)
@json_option
@html_option
@quiet_option
def command(model: str, gpu: str, node: str | None, fabric: str | None, **options: Any) -> int:
    """Plan the prefill of prompts of MODEL that ranks split along the sequence.

    Each prompt is given its own number of ranks, and zigzag or contiguous chunks on them, so that the slowest rank is
    done soonest; beside it stand zigzag and contiguous chunks of every prompt over all ranks, and whole prompts.
    """
    from presim.cli.option_groups import pop_options
    from presim.hardware.cluster_choice import choose_cluster
    from presim.serving.model_lookup import find
    from presim.serving.prompts.split_options import PromptOptions, SplitOptions
    from presim.serving.serving_plan import ServingPlan
    from presim.serving.weight_types import typed
    from presim.system.files import check_writable

    split, prompts = pop_options(SplitOptions, options), pop_options(PromptOptions, options)
    outputs = Outputs(**options)
    for path in (outputs.json_file, outputs.html):
        if path not in (None, "-"):
            check_writable(path)
    shape = find(model)
    plan = typed(ServingPlan(tp=split.tp), shape, split.weights, None)
    plan.check(shape)
    batches = prompts.batches()
    cluster = choose_cluster(gpu=gpu, node=node, fabric=fabric, world_size=split.ranks * plan.tp)
    with noted("nothing is written, because no batch was planned"):
        planned, content = _plan_prefills(shape, plan, cluster, batches, split, outputs)
    _deliver(planned, content, outputs)
    return ExitCode.DOES_NOT_FIT if content["refused"] else ExitCode.STANDS


def _plan_prefills(
    model: Model,
    plan: ServingPlan,
    cluster: Cluster,
    batches: list[tuple[int, ...]],
    split: SplitOptions,
    outputs: Outputs,
) -> tuple[list[Prefilled], dict[str, Any]]:
    """The batches with their plans, and the document about them."""
    from presim.cli.progress import progress
    from presim.serving.prompts import prefill, prefill_record
    from presim.serving.prompts.prompt_times import PromptTimes
    from presim.system.budgets import budget_of

    for batch in batches:
        prefill.check(model, plan, split.ranks, batch)
    budget = budget_of(split.work_budget, "--work-budget") if split.work_budget else None
    prefill.check_work(sum(map(len, batches)), split.ranks, budget)
    prices = PromptTimes(model, plan, cluster, split.ranks, max(map(sum, batches)))
    planned: list[Prefilled] = []
    refused: list[str] = []
    with caught() as stop, progress(outputs.json_file == "-") as say:
        for number, batch in enumerate(batches, start=1):
            say(f"batch {number} of {len(batches)}")
            prefilled = prefill.of_batch(prices, batch)
            try:
                prefill.check_memory(prefilled)
                planned.append(prefilled)
            except InputError as error:
                if len(batches) == 1:
                    raise
                refused.append(f"batch {number}: {error}")
    stop.unless(planned)
    if not planned:
        raise InputError(f"no batch can be planned, {refused[0]}")
    return planned, prefill_record.document(planned, refused=refused, partial=stop.is_partial)


def _deliver(planned: list[Prefilled], content: dict[str, Any], outputs: Outputs) -> None:
    from presim.cli import partial_results
    from presim.cli.serve import deliver
    from presim.serving.prompts import prefill_record
    from presim.system.files import write_file

    if outputs.html and content["partial"]:
        partial_results.write_page("prefill", content, outputs.html)
    elif outputs.html:
        write_file(outputs.html, prefill_record.render(planned, content).encode())
    if outputs.json_file:
        deliver(prefill_record.encode(content), outputs.json_file)
    if not outputs.quiet and outputs.json_file != "-":
        if content["partial"]:
            partial_results.write("prefill", content)
        else:
            prefill_record.write(content)
