"""``presim doctor``: check the installation and name the command that fixes each problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from presim.capture.setup.doctor import Check


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.option("--deep", is_flag=True, help="Also start PyTorch on the emulated libraries and create a tensor.")
def command(as_json: bool, deep: bool) -> int:
    """Check the installation and name the command that fixes each problem.

    The exit code is 0 if `presim run` would work here, 1 if not.
    """
    from presim.capture.setup.doctor import State, examine, examine_deeply
    from presim.capture.setup.machine import inspect_machine

    checks = list(examine(inspect_machine()))
    works = all(check.state is not State.MISSING for check in checks)
    if deep and works:
        checks.append(examine_deeply())
        works = checks[-1].state is not State.MISSING
    click.echo(_json(checks, works) if as_json else _words(checks, works))
    return 0 if works else 1


def _json(checks: Sequence[Check], works: bool) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode({"works": works, "checks": checks})).decode()


def _words(checks: Sequence[Check], works: bool) -> str:
    width = max(len(check.name) for check in checks)
    lines = [f"{check.state:<7}  {check.name:<{width}}  {check.found}" for check in checks]
    mends = [f"  {check.name}: {check.mend}" for check in checks if check.mend]
    verdict = "`presim run` works here." if works else "`presim run` does not work here yet."
    return "\n".join([*lines, "", verdict, *(["To mend:", *mends] if mends else [])])
