"""The answer of `presim network`: the shape of a network, a collective on it, and its busiest links."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from presim.network.exchange import Outcome
from presim.network.topology import Topology

SCHEMA = "presim-network/1"
_SHOWN = 8  # links in the table


def shape(topology: Topology) -> dict[str, Any]:
    """The numbers of GPUs, vertices and links."""
    return {"schema": SCHEMA, "gpus": topology.gpus, "vertices": len(topology.names), "links": topology.links}


def document(topology: Topology, outcome: Outcome, groups: list[tuple[int, ...]], kind: str) -> dict[str, Any]:
    """The time of a collective of ``groups``, and its busiest links where links are shared."""
    answer: dict[str, Any] = {
        **shape(topology),
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


def encode(answer: dict[str, Any]) -> str:
    """The answer as JSON with sorted keys."""
    return json.dumps(answer, indent=2, sort_keys=True)


def text(answer: dict[str, Any]) -> str:
    """The answer in lines."""
    lines = [f"{answer['gpus']} GPUs, {answer['vertices']} vertices, {answer['links']} links, one way each"]
    if "seconds" not in answer:
        return lines[0]
    groups = (
        f"{answer['groups']} groups of {answer['ranks']} ranks at once"
        if answer["groups"] > 1
        else f"{answer['ranks']} ranks"
    )
    classes = f" in {answer['classes']} classes" if "classes" in answer else ""
    lines.append(
        f"{answer['collective']} of {groups}: {answer['seconds'] * 1e3:.3f} ms, {answer['flows']:,} flows{classes}"
    )
    lines += [
        f"  {link['utilisation']:6.1%} of {link['GBps']:7.1f} GB/s  {link['link']}  "
        f"({link['flows']:,} flows of {link['groups']} group{'s' if link['groups'] > 1 else ''})"
        for link in answer.get("busiest_links", ())
    ]
    return "\n".join(lines)
