"""``presim run``: capture a script, price and simulate it, report the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.options import Outputs, cluster_options, engine_options, exit_code, output_options
from presim.cli.verb import Verb
from presim.units import quantities


@click.command("run", cls=Verb, context_settings={"allow_interspersed_args": False})
@cluster_options
@click.option(
    "--ranks",
    default="auto",
    metavar="RANKS",
    show_default=True,
    help="Ranks to capture: auto (one per group of equal ranks), all, or ranks and ranges such as 0,8,16-23.",
)
@click.option("--rank", type=number(quantities.RANK), metavar="R", help="Same as --ranks R.")
@click.option(
    "--check",
    "checks",
    type=number(quantities.RANKS),
    metavar="N",
    help="With auto: number of other ranks to run and compare; 0: none. Default: all up to 16 ranks, else a sample.",
)
@click.option(
    "--check-time",
    type=number(quantities.SECONDS),
    default=20.0,
    metavar="SECONDS",
    show_default=True,
    help="With auto: start no further comparisons after this time.",
)
@click.option(
    "--steps",
    type=number(quantities.STEPS),
    metavar="N",
    help="Stop after N steps; 0 runs the script to its end. Default: when its steps have been seen to repeat.",
)
@click.option(
    "--limit",
    type=number(quantities.POSITIVE_SECONDS),
    default=600.0,
    metavar="SECONDS",
    show_default=True,
    help="Stop the script if the capture takes longer.",
)
@click.option(
    "--sanitize",
    is_flag=True,
    help="Stop at the first missing synchronisation between streams (PyTorch's CUDA sanitizer).",
)
@click.option("--live", is_flag=True, help="Show the cluster's simulated time to the script's clocks while it runs.")
@click.option("--save", "--out", metavar="DIR", help="Save the trace for `presim simulate`.")
@click.option(
    "--wider",
    type=number(quantities.GPUS),
    metavar="N",
    help="With --save: capture the job on N GPUs, too, so that `presim simulate --world-size` answers for more ranks "
    "that hold shards of parameters.",
)
@click.option(
    "--profile-missing",
    is_flag=True,
    help="Measure on this machine's GPU what the first --prices folder lacks, and store it there.",
)
@click.option("-m", "module", is_flag=True, help="Treat SCRIPT as a module, as in `python -m`.")
@click.option(
    "--values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Policy for values that presim does not compute: loss, gradient_norm, number, routing, token, eos, eos_after, "
    "acceptance, attention_share, watchdog; or a file of such lines; `off` computes no values. Repeatable.",
)
@click.option(
    "--draws",
    type=number(quantities.DRAWS),
    default=1,
    metavar="N",
    show_default=True,
    help="Capture N times with different seeds of --values routing and report percentiles of the step time.",
)
@engine_options
@output_options
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(script: str, args: tuple[str, ...], **options: Any) -> int:
    """Run SCRIPT with ARGS on an emulated GPU and predict its performance on a cluster.

    SCRIPT ARGS may be a launch command: torchrun, accelerate launch, deepspeed, srun, mpirun, python. Its options set
    the number of ranks, and each rank gets the environment that the launcher would give it (torchrun's if there is no
    launcher). The script runs unmodified in a process of its own. The device computes nothing: its work is recorded,
    priced for the cluster and simulated.
    """
    from presim.cli.progress import progress
    from presim.errors import InputError
    from presim.evaluation.options import RunOptions
    from presim.report.content import in_a_line
    from presim.verbs.run import run_and_evaluate

    if not (options["gpu"] or options["cluster"]) and (misplaced := _misplaced(args)):
        raise InputError(f"no GPU is named{misplaced}")
    outputs = Outputs.pop_from(options)
    outputs.check(options["save"])
    stdout = 2 if outputs.json_file == "-" else None  # standard output is reserved for the result
    with progress(outputs.quiet, lines=True) as say:
        evaluation = run_and_evaluate(
            [script, *args], RunOptions(**options), stdout=stdout, progress=say, keeps_finished=True
        )
    result = evaluation.result
    failed = result.exit in ("raised", "exited", "killed")
    empty = failed and not result.operators and not result.memory.peak_reserved_bytes
    outputs.deliver(evaluation, report=not empty)
    if failed and (empty or outputs.quiet or outputs.json_file == "-"):  # no report mentions it
        covers = "; it ran no GPU work" if empty else "; the result covers the work captured until then"
        rank = f"rank {result.job.rank}: " if len(result.ranks) > 1 else ""
        click.echo(f"presim: {rank}{in_a_line(result.error)}{covers}{_misplaced(args)}", err=True)
    if result.misuse and outputs.quiet:
        click.echo(f"presim: {in_a_line(result.misuse[0])}", err=True)
    return exit_code(result)


def _misplaced(args: Sequence[str]) -> str:
    """A hint if a failed script received options that belong to presim."""
    scripts = [index for index, word in enumerate(args) if word.endswith(".py")]  # after a launcher's options
    behind = args[scripts[-1] + 1 :] if scripts else args
    ours = {name for option in command.params for name in option.opts if name.startswith("--")}
    ours -= {"--out"}  # scripts have one, too
    misplaced = [word for word in behind if word.partition("=")[0] in ours]
    return f". Were {', '.join(misplaced)} meant for presim? Its options come before the script" if misplaced else ""
