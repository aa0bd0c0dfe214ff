"""``presim view``: show jobs in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from presim.cli.numbers import number
from presim.cli.verb import Verb
from presim.units import quantities


@click.command("view", cls=Verb)
@click.argument("names", nargs=-1, required=True, metavar="DIR|RESULT.json...")
@click.option("--port", type=number(quantities.PORT), default=0, help="Port on this machine; default: a free one.")
@click.option("--open/--no-open", "opens", default=True, help="Open the page in the browser.")
def command(names: tuple[str, ...], port: int, opens: bool) -> None:
    """Show saved jobs and results of any verb in the browser.

    A DIR is a folder from `presim run --save` or `presim compose --save`: timelines of all ranks, memory,
    communication, power, roofline; two jobs are compared. A RESULT.json is what --json of any verb wrote, of this
    version or the last. The page needs no network. The server listens on this machine only and ends with Ctrl-C.
    """
    try:
        from presim.app.view.server import application, serve
        from presim.system.localhost import HOSTS, listening_socket
    except ImportError as error:
        from presim.errors import InputError

        raise InputError(f"`presim view` needs {error.name}: pip install 'presim[view]'") from error
    from presim.app.view.opened import open_result
    from presim.app.view.panes import Shown
    from presim.evaluation.options import EvaluationOptions
    from presim.studies.saved_jobs import compare_jobs
    from presim.system.files import names_file
    from presim.verbs.simulate import evaluate_saved

    results = [open_result(Path(name)) for name in names if names_file(name)]
    jobs = [name for name in names if not names_file(name)]

    shown = [Shown(job, evaluate_saved(job, EvaluationOptions())) for job in jobs]

    def compare() -> bytes:
        from presim.report import comparison

        return comparison.encode(compare_jobs(jobs))

    with listening_socket(port, "--port") as listening:
        address = f"http://{HOSTS[1]}:{listening.getsockname()[1]}/"
        click.echo(f"{', '.join(names)} at {address} (Ctrl-C ends)")
        if opens:
            import webbrowser

            webbrowser.open(address)
        serve(application(shown, compare if len(jobs) > 1 else None, results), listening)
