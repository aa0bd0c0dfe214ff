"""``presim doctor``: check the installation and name the command that fixes each problem."""

from __future__ import annotations

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.option("--deep", is_flag=True, help="Also start PyTorch on the emulated libraries and create a tensor.")
@click.option("--prepare", is_flag=True, help="First compile all loops for this CPU, so that no verb has to.")
def command(as_json: bool, deep: bool, prepare: bool) -> int:
    """Check the installation and name the command that fixes each problem.

    The exit code is 0 if `presim run` would work here, 1 if not.
    """
    from presim.capture.setup.doctor import Examination, State, encode, examine, examine_deeply, text
    from presim.capture.setup.machine import inspect_machine

    if prepare:
        from presim.verbs.prepare import compile_loops

        compile_loops()
    checks = list(examine(inspect_machine()))
    works = all(check.state is not State.MISSING for check in checks)
    if deep and works:
        checks.append(examine_deeply())
        works = checks[-1].state is not State.MISSING
    content = Examination(works, checks)
    click.echo(encode(content) if as_json else text(content))
    return 0 if works else 1
