"""The ``presim`` command. It imports a verb's module only when called, so that ``presim --help`` is fast."""

from __future__ import annotations

from presim.cli import early_interrupt

with early_interrupt.EarlyInterrupt():
    import contextlib
    import importlib
    import sys
    from collections.abc import Iterator
    from typing import TYPE_CHECKING, Any, TypeGuard

    import click

    from presim.cli import progress, streams, surroundings
    from presim.cli.verb import VerbGroup
    from presim.system import command_line, compiled_loops, interrupts

if TYPE_CHECKING:
    from presim.errors import PresimError

_BROKEN_PIPE = 141  # the shells' exit code for SIGPIPE
_INTERRUPTED = tuple(128 + number for number in interrupts.SIGNALS)
VERBS = {
    "run": "Run a script on an emulated GPU and predict its performance on a cluster.",
    "import": "Import a profile of a real run as a job, to replay it on this or other hardware.",
    "simulate": "Simulate a saved trace on the same or other hardware.",
    "replan": "Simulate a saved job with more micro-batches or data-parallel ranks.",
    "graph": "Export a model as a graph of operators, or inspect one.",
    "compose": "Predict a training job from a model and a plan, without a program.",
    "serve": "Predict latency and throughput of a served model under a load.",
    "rl": "Predict post-training by reinforcement learning, rollouts and training together.",
    "prefill": "Plan over which GPUs the prompts of a batch are split.",
    "search": "Find the best plan for a model, or the best arguments for a command.",
    "deploy": "Find the deployment of a model with the most throughput within an SLO.",
    "report": "Show a saved result, or write it as an HTML page.",
    "app": "Ask, watch, change and compare predictions in the browser.",
    "view": "Show saved jobs in the browser: timelines, memory, communication, roofline.",
    "compare": "Show what changed between predictions in time and memory, part by part.",
    "explain": "Show what limits a saved job and what would help, with each candidate simulated.",
    "training": "Estimate the duration and cost of a whole training, with failures and checkpoints.",
    "gate": "Check jobs against budgets for step time and memory, in CI.",
    "trace": "Inspect a saved trace.",
    "profile": "Measure operators on this machine's GPU, or import measurements.",
    "network": "Show a network, or the time of a collective on it and its bottleneck links.",
    "hardware": "List GPUs, node types and fabrics, or show one with its sources.",
    "models": "List the models that are known by name.",
    "calibrate": "Correct predictions with your own run or serving benchmark.",
    "fit": "Fit prices to measurements.",
    "validate": "Compare predictions with measured runs.",
    "doctor": "Check the installation and name the command that fixes each problem.",
}

GROUPS = {  # heading of the help -> verbs, in the order of typical use
    "Predict": ("run", "compose", "simulate", "replan", "search", "explain"),
    "Serve": ("serve", "deploy", "prefill"),
    "Train": ("training", "rl"),
    "Look and compare": ("app", "view", "report", "compare", "gate", "trace"),
    "Hardware and models": ("hardware", "network", "models", "graph"),
    "Your data": ("import", "profile", "calibrate", "fit", "validate"),
    "Installation": ("doctor",),
}


class _ReaderLeftError(Exception):
    """Who reads standard output has closed it. Not an OSError, which click turns into exit code 1."""


@contextlib.contextmanager
def _broken_pipes_named() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderLeftError from error


class Verbs(VerbGroup):
    """A group with one command per module ``presim.cli.VERB``, imported on first use."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """As click does; ``--help`` prints here."""
        with _broken_pipes_named():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        with _broken_pipes_named():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of typical use."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"presim.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line per verb under the heading of its group, from the tables above."""
        widest = max(map(len, VERBS))
        for heading, verbs in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(widest), VERBS[verb]) for verb in verbs if verb in VERBS])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a verb as click does; for an unknown verb, suggest similar ones."""
        import difflib

        if args and not args[0].startswith("-") and args[0] not in VERBS:
            similar_verbs = difflib.get_close_matches(args[0], VERBS, 2)
            hint = (
                f"; did you mean {' or '.join(similar_verbs)}?" if similar_verbs else f"; use one of {', '.join(VERBS)}"
            )
            ctx.fail(f"no verb {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Verbs,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="presim", message="presim %(version)s")
def cli() -> None:
    """Predict a GPU job on a machine without GPUs.

    presim runs an unmodified PyTorch program without GPUs and predicts its step time, memory and bottlenecks on the
    cluster you name.
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its code (`presim.errors.ExitCode`)."""
    early_interrupt.ignored_at_last()
    early_interrupt.delivered_again()
    interrupts.install()
    streams.prepare()
    progress.announce_verbs()
    compiled_loops.announce_with(lambda text: click.echo(f"presim: {text}", err=True))
    code = run(args)
    if code in _INTERRUPTED:
        compiled_loops.end_background()
    early_interrupt.until_exit()
    sys.exit(code)


def run(args: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from presim.errors import PresimError

    interrupts.taken()
    try:
        words = sys.argv[1:] if args is None else args
        surroundings.check(words)
        with command_line.running(words):
            outcome: Any = cli.main(args=args, prog_name="presim", standalone_mode=False)
        sys.stdout.flush()
        if (interrupt := interrupts.taken()) is not None:
            click.echo("presim: interrupted; what was finished is reported as partial", err=True)
            return interrupts.exit_code(interrupt)
        return outcome if isinstance(outcome, int) else 0
    except click.ClickException as error:
        error.message = surroundings.brief(error.message)  # type: ignore[misc]  # final in click, not at run time
        error.show()
        return error.exit_code
    except PresimError as error:
        click.echo(f"presim: {surroundings.brief(str(error))}", err=True)
        return _exit_code(error)
    except (KeyboardInterrupt, click.Abort) as error:
        with contextlib.suppress(OSError):  # a closed terminal
            note = interrupts.note_of(error)
            click.echo(f"presim: interrupted{'; ' if note else ''}{note}", err=True)
        return interrupts.exit_code(error)
    except _ReaderLeftError:
        streams.silence()
        return _BROKEN_PIPE
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return _BROKEN_PIPE  # rich exits this way
    except (OSError, MemoryError) as error:
        return _stdout_failed(error) if _is_of_stdout(error) else _refused(error)


def _exit_code(error: PresimError) -> int:
    from presim.errors import ExitCode, HangError, InternalError, MisfitError

    codes = {InternalError: ExitCode.BUG, HangError: ExitCode.HANGS, MisfitError: ExitCode.DOES_NOT_FIT}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), ExitCode.UNUSABLE)


def _is_of_stdout(error: OSError | MemoryError) -> TypeGuard[OSError]:
    return isinstance(error, BrokenPipeError) or (
        isinstance(error, OSError) and error.errno in streams.FULL and error.filename is None
    )


def _stdout_failed(error: OSError) -> int:
    streams.silence()
    if isinstance(error, BrokenPipeError):
        return _BROKEN_PIPE
    click.echo(f"presim: cannot write to standard output: {error.strerror}", err=True)
    return 2


def _refused(error: OSError | MemoryError) -> int:
    """What the system refused anywhere; anything else is a bug."""
    if not (words := surroundings.sentence(error)):
        raise error
    click.echo(f"presim: {words}", err=True)
    return 2


if __name__ == "__main__":
    main()
