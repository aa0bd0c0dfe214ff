"""``presim rl``: predict post-training by reinforcement learning, rollouts and training together."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.option_groups import add_options
from presim.cli.options import cluster_options
from presim.cli.rl_options import BATCH, ENGINE, OTHERS, PLACEMENT
from presim.cli.rl_trainer_options import TRAINER
from presim.cli.verb import Verb
from presim.system.interrupts import noted

_NOT_SIMULATED = "nothing is written, because no step was simulated to its end"


@click.command("rl", cls=Verb)
@click.argument("words", nargs=-1, metavar="[MODEL] [KEY=VALUE]...")
@click.option(
    "--from",
    "recipe",
    nargs=2,
    metavar="FRAMEWORK FILE",
    help="Read a recipe of verl, nemo-rl, trl, slime, openrlhf, areal or rlinf; KEY=VALUE override its keys, other "
    "options both.",
)
@cluster_options
@add_options(BATCH, PLACEMENT, TRAINER, ENGINE, OTHERS)
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    recipe: tuple[str, str] | None,
    json_file: str | None,
    html: str | None,
    written: tuple[str, str] | None,
    searches: bool,
    vary: tuple[str, ...],
    study: str | None,
    quiet: bool,
    price_per_gpu_hour: float | None,
    train: str | None,
    **options: Any,
) -> None:
    """Predict a step of reinforcement learning of MODEL: rollout, log-probabilities, update and weight sync.

    Rollouts run on simulated engines with vLLM's or SGLang's scheduling; log-probabilities and updates are composed
    training steps with packed sequences, balanced over ranks.
    """
    from presim.cli import rl_inputs
    from presim.cli.progress import progress
    from presim.cli.serve import deliver
    from presim.planner.space import parse_knobs
    from presim.post_training import rl_text
    from presim.post_training.recipes.write_recipe import check
    from presim.system.files import check_writable
    from presim.verbs.rl import predict_rl

    if written:
        check(written[0])
    for path in (json_file, html, written and written[1]):
        if path is not None and path != "-":
            check_writable(path)
    sources = {name: context.get_parameter_source(name) for name in options}
    explicit = {name for name, source in sources.items() if source is click.core.ParameterSource.COMMANDLINE}
    request, cluster, notes = rl_inputs.request_of(words, recipe, options, explicit)
    with (
        progress(quiet or json_file == "-") as say,
        noted(_NOT_SIMULATED),
    ):
        answer = predict_rl(
            request,
            cluster,
            price_per_gpu_hour=price_per_gpu_hour,
            notes=notes,
            searches=searches,
            vary=parse_knobs(vary, any_name=True),
            study=study,
            writes=written[0] if written else None,
            train=train,
            progress=say,
        )
    if written:
        deliver("".join(f"{setting}\n" for setting in answer.settings).encode(), written[1])
    if html:
        from presim.post_training import rl_page

        rl_page.write(answer, html)
    if json_file:
        deliver(rl_text.encode(answer), json_file)
    if not quiet and json_file != "-":
        rl_text.write(answer)
