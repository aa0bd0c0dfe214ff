"""``presim network``: collectives on a network, link by link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from presim.network.exchange import Outcome
    from presim.network.topology import Topology

_SHOWN = 8  # links in the table


@click.command("network")
@click.argument("file", metavar="FILE")
@click.option("--collective", "kind", metavar="KIND", help="Collective: all_reduce, all_to_all, send, …")
@click.option(
    "--bytes",
    "size",
    default="1GiB",
    metavar="SIZE",
    show_default=True,
    help="Size as in nccl-tests, e.g. 64MiB, 1GB.",
)
@click.option("--ranks", metavar="RANKS", help="Ranks that take part, e.g. 0-63 or 0,8,16; default: all.")
@click.option("--together", is_flag=True, help="All groups of the same kind exchange at the same time.")
@click.option(
    "--resolution",
    type=click.Choice(["link", "flow"]),
    default="flow",
    show_default=True,
    help="flow: max-min fair flows over time; link: transfer time of all traffic on the busiest link.",
)
@click.option("--plot", metavar="FILE", help="Draw the network as an SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(file: str, as_json: bool, plot: str | None, **query: Any) -> None:
    """Show the network that FILE describes, or the time of a collective on it and its bottleneck links.

    FILE is a cluster's TOML file with a [network] table, or a topology in the format of ASTRA-sim (.yml), SimAI, NCCL
    (.xml) or `nvidia-smi topo -m`.
    """
    from presim.files import check_writable, write_file
    from presim.network.open import open_network

    if plot:
        check_writable(plot)
    topology = open_network(file)
    answer = _shape(topology)
    if query["kind"] is not None:
        outcome, groups = _run(topology, **query)
        answer = _answer(topology, outcome, groups, query["kind"])
    if plot:
        from presim.network.plot import svg

        write_file(plot, svg(topology).encode())
    _print(answer, as_json)


def _run(topology: Topology, kind: str, size: str, ranks: str | None, together: bool, resolution: Any) -> Any:
    from presim.errors import InputError
    from presim.network.exchange import Exchange, run
    from presim.network.open import bytes_of, ranks_of
    from presim.trace.grids import sisters

    chosen = ranks_of(ranks) if ranks else tuple(range(topology.gpus))
    if len(chosen) < 2:
        raise InputError(f"{len(chosen)} rank has no one to communicate with: give at least two with --ranks")
    groups = sisters(chosen, topology.gpus) if together else [chosen]
    return run(topology, [Exchange(kind, bytes_of(size), group) for group in groups], resolution), groups


def _shape(topology: Topology) -> dict[str, Any]:
    return {"gpus": topology.gpus, "vertices": len(topology.names), "links": topology.links}


def _answer(topology: Topology, outcome: Outcome, groups: list[tuple[int, ...]], kind: str) -> dict[str, Any]:
    import numpy as np

    answer: dict[str, Any] = {
        **_shape(topology),
        "collective": kind,
        "groups": len(groups),
        "ranks": len(groups[0]),
        "seconds": max(outcome.seconds),
        "flows": len(outcome.flows.bytes),
    }
    if outcome.shared is None:
        return answer
    used = outcome.shared.utilisation(topology)
    worst = np.argsort(-used, kind="stable")[:_SHOWN]
    paths = outcome.flows.paths
    answer |= {"classes": outcome.shared.classes, "events": outcome.shared.events}
    answer["busiest_links"] = [
        {
            "link": topology.link_name(int(link)),
            "GBps": float(topology.bandwidth_Bps[link] / 1e9),
            "utilisation": float(used[link]),
            "flows": int((paths == link).any(axis=1).sum()),
            "groups": len(np.unique(outcome.flows.owner[(paths == link).any(axis=1)])),
        }
        for link in worst.tolist()
        if used[link] > 0
    ]
    return answer


def _print(answer: dict[str, Any], as_json: bool) -> None:
    import json

    if as_json:
        click.echo(json.dumps(answer, indent=2, sort_keys=True))
        return
    click.echo(f"{answer['gpus']} GPUs, {answer['vertices']} vertices, {answer['links']} links, one way each")
    if "seconds" not in answer:
        return
    groups = (
        f"{answer['groups']} groups of {answer['ranks']} ranks at once"
        if answer["groups"] > 1
        else f"{answer['ranks']} ranks"
    )
    classes = f" in {answer['classes']} classes" if "classes" in answer else ""
    click.echo(
        f"{answer['collective']} of {groups}: {answer['seconds'] * 1e3:.3f} ms, {answer['flows']:,} flows{classes}"
    )
    for link in answer.get("busiest_links", ()):
        click.echo(
            f"  {link['utilisation']:6.1%} of {link['GBps']:7.1f} GB/s  {link['link']}  "
            f"({link['flows']:,} flows of {link['groups']} group{'s' if link['groups'] > 1 else ''})"
        )
