"""``presim prefill``: plan over which ranks the prompts of a batch are split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim.cli.numbers import number
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.serving_options import WEIGHTS
from presim.cli.verb import Verb
from presim.errors import ExitCode, InputError
from presim.system.interrupts import caught, noted
from presim.units import quantities

if TYPE_CHECKING:
    from presim.composition.models.description import Model
    from presim.hardware import Cluster
    from presim.serving.prompts.prefill import Prefilled
    from presim.serving.serving_plan import ServingPlan


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
    from presim.hardware.cluster_choice import choose_cluster
    from presim.serving.model_lookup import find
    from presim.serving.serving_plan import ServingPlan
    from presim.serving.weight_types import typed
    from presim.system.files import check_writable

    for name in ("json_file", "html"):
        if options[name] not in (None, "-"):
            check_writable(options[name])
    shape = find(model)
    plan = typed(ServingPlan(tp=options["tp"]), shape, options["weights"], None)
    plan.check(shape)
    batches = _batches(options)
    world = options["ranks"] * plan.tp
    cluster = choose_cluster(gpu=gpu, node=node, fabric=fabric, world_size=world)
    with noted("nothing is written, because no batch was planned"):
        planned, content = _plan_prefills(shape, plan, cluster, batches, options)
    _deliver(planned, content, options)
    return ExitCode.DOES_NOT_FIT if content["refused"] else ExitCode.STANDS


def _plan_prefills(
    model: Model, plan: ServingPlan, cluster: Cluster, batches: list[tuple[int, ...]], options: dict[str, Any]
) -> tuple[list[Prefilled], dict[str, Any]]:
    """The batches with their plans, and the document about them."""
    from presim.cli.progress import progress
    from presim.serving.prompts import prefill, prefill_record
    from presim.serving.prompts.prompt_times import PromptTimes
    from presim.system.budgets import budget_of

    for batch in batches:
        prefill.check(model, plan, options["ranks"], batch)
    prompts, budget = sum(map(len, batches)), options["work_budget"]
    prefill.check_work(prompts, options["ranks"], budget_of(budget, "--work-budget") if budget else None)
    prices = PromptTimes(model, plan, cluster, options["ranks"], max(map(sum, batches)))
    planned: list[Prefilled] = []
    refused: list[str] = []
    with caught() as stop, progress(options["json_file"] == "-") as say:
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


def _deliver(planned: list[Prefilled], content: dict[str, Any], options: dict[str, Any]) -> None:
    from presim.cli import partial_results
    from presim.cli.serve import deliver
    from presim.serving.prompts import prefill_record
    from presim.system.files import write_file

    if options["html"] and content["partial"]:
        partial_results.write_page("prefill", content, options["html"])
    elif options["html"]:
        write_file(options["html"], prefill_record.render(planned, content).encode())
    if options["json_file"]:
        deliver(prefill_record.encode(content), options["json_file"])
    if not options["quiet"] and options["json_file"] != "-":
        if content["partial"]:
            partial_results.write("prefill", content)
        else:
            prefill_record.write(content)


def _batches(options: dict[str, Any]) -> list[tuple[int, ...]]:
    """The prompts, batch by batch."""
    from presim.errors import InputError
    from presim.serving.prompts.prefill import batches
    from presim.serving.workloads import traces
    from presim.serving.workloads.generate import lengths_of
    from presim.system.files import names_file

    words, trace = options["lengths"], options["trace"]
    if (words is None) == (trace is None):
        raise InputError("give the prompts with either --lengths 32768,8192,512 or --trace FILE")
    if trace is not None:
        workload = traces.read_trace(trace, options["requests"])
        return batches(workload.prompt.tolist(), options["budget"] or 65536)
    if names_file(words):
        lengths = list(lengths_of(words).drawn_from)
    else:
        try:
            lengths = [int(word) for word in words.split(",")]
        except ValueError:
            raise InputError(f"--lengths is 32768,8192,512 or a file of numbers, not {words!r}") from None
    return batches(lengths, options["budget"] or max(sum(lengths), 1))
