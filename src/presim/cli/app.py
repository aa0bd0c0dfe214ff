"""``presim app``: predictions in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from presim import quantities
from presim.cli.numbers import number
from presim.cli.verb import Verb


@click.command("app", cls=Verb)
@click.argument("folder", required=False, default=".", metavar="[FOLDER]")
@click.option("--port", type=number(quantities.PORT), default=0, help="Port on this machine; default: a free one.")
@click.option("--open/--no-open", "opens", default=True, help="Open the page in the browser.")
def command(folder: str, port: int, opens: bool) -> None:
    """Ask, watch, change and compare predictions in the browser.

    Results are files in FOLDER (default: this one), each as --json of a verb writes it, beside its command as a script
    and its log. The page needs no network. The server listens on this machine only, asks for the token in the address
    it prints, and ends with Ctrl-C; running jobs end with it.
    """
    try:
        from presim.app.server import application
        from presim.process.localhost import HOSTS, listening_socket
        from presim.view.server import serve
    except ImportError as error:
        from presim.errors import InputError

        raise InputError(f"`presim app` needs {error.name}: pip install 'presim[view]'") from error
    import secrets

    from presim.app.state import State
    from presim.files import make_folder

    project = Path(folder).resolve()
    make_folder(project)
    state, token = State(project), secrets.token_urlsafe(24)
    with listening_socket(port, "--port") as listening:
        address = f"http://{HOSTS[1]}:{listening.getsockname()[1]}/?token={token}"
        click.echo(f"{project} at {address} (Ctrl-C ends)")
        if opens:
            import webbrowser

            webbrowser.open(address)
        try:
            serve(application(state, token), listening)
        finally:
            state.close()
