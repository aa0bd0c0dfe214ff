"""Which models of collectives are asked for a cluster, and in what order."""

from __future__ import annotations

from collections.abc import Mapping

from presim import plugins
from presim.cost.collectives.contended import Contended
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measured import Measured, rows_of
from presim.cost.collectives.model import NetworkModel
from presim.cost.collectives.statistical import Statistical, parameters_of
from presim.errors import InputError
from presim.hardware import Cluster

GROUP = "presim.collectives"
_KEYS = ("model", "measured", "link", "fabric", "statistical")


def collective_models(cluster: Cluster, nccl: Mapping[str, str] | None = None) -> tuple[NetworkModel, ...]:
    """What the cluster's file brings, then plug-ins, then the white-box model, which covers everything.

    A plug-in registers a function of a cluster and NCCL's variables in the entry-point group ``presim.collectives``; it
    returns a `NetworkModel`, or None for a cluster that it does not know. A table of measurements comes first. The
    statistical model is asked where the file says ``model = "statistical"``. Where the file describes the network,
    groups that share links are simulated flow by flow. ``nccl``: NCCL's variables in the script; measurements stand as
    they were made, whatever it says.
    """
    said = cluster.collectives
    if unknown := [key for key in said if key not in _KEYS]:
        raise InputError(f"the cluster's [collectives] has no key {unknown[0]}; there are {', '.join(_KEYS)}")
    models: list[NetworkModel] = []
    if rows := rows_of(said):
        models.append(Measured(rows))
    chosen = said.get("model", "white-box")
    if chosen == "statistical":
        models.append(Statistical(parameters_of(cluster)))
    elif chosen != "white-box":
        raise InputError(
            f'the cluster\'s [collectives] has model = "{chosen}"; there are "white-box" and "statistical"'
        )
    made = (make(cluster, nccl or {}) for make in plugins.factories(GROUP).values())
    models += [found for found in made if found is not None]
    base = Hierarchical(nccl)
    return (*models, Contended(base), base) if cluster.network else (*models, base)
