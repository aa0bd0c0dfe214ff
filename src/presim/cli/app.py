"""``presim app``: predictions in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from presim.cli.numbers import number
from presim.cli.verb import Verb
from presim.units import quantities


@click.command("app", cls=Verb)
@click.argument("folder", required=False, default=".", metavar="[FOLDER]")
@click.option("--port", type=number(quantities.PORT), default=0, help="Port on this machine; default: a free one.")
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Let a team in: an address of this machine, or 0.0.0.0 for all of them. Needs --token-file.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the login token, of at least 16 letters and digits. Default: a new one each time.",
)
@click.option(
    "--allow-scripts",
    is_flag=True,
    help="Let the page start scripts of the folder, which may do all that you may. Not with --host.",
)
@click.option("--open/--no-open", "opens", default=True, help="Open the page in the browser.")
def command(
    folder: str, port: int, host: str | None, token_file: Path | None, allow_scripts: bool, opens: bool
) -> None:
    """Ask, watch, change and compare predictions in the browser.

    Results are files in FOLDER (default: this one), each as --json of a verb writes it, beside its command as a script
    and its log. The page needs no network. The server listens on this machine only, asks for the token in the address
    it prints, and ends with Ctrl-C; running jobs end with it.

    With --host others reach it, too: who has the address may start jobs as you, who has the read-only one may look.
    What is sent is not encrypted: across networks use ssh -L, or a proxy with TLS.
    """
    try:
        from presim.app.server import application
        from presim.app.view.server import serve
        from presim.system.localhost import HOSTS, listening_socket
    except ImportError as error:
        from presim.errors import InputError

        raise InputError(f"`presim app` needs {error.name}: pip install 'presim[view]'") from error
    from presim.app.guard import Tokens
    from presim.app.login import allowed_hosts, read_token
    from presim.app.state import AppState
    from presim.system.files import make_folder

    if allow_scripts and host:
        from presim.errors import InputError

        raise InputError(
            f"--allow-scripts with --host {host} would let all who have the address run programs as you: leave one out"
        )
    project = Path(folder).resolve()
    make_folder(project)
    token = read_token(host, token_file)
    state = AppState(project, allows_scripts=allow_scripts)
    with listening_socket(port, "--port", host or HOSTS[1]) as listening:
        page = f"http://{allowed_hosts(host)[-1] if host else HOSTS[1]}:{listening.getsockname()[1]}/"
        address = f"{page}?token={token}"
        click.echo(f"{project} at {address} (Ctrl-C ends)")
        if host:
            click.echo(f"read-only: {page}?token={Tokens(token).read_only}")
        if opens:
            import webbrowser

            webbrowser.open(address)
        try:
            serve(application(state, token, allowed_hosts(host)), listening)
        finally:
            state.close()
