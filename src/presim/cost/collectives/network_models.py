"""The network models of a cluster, in order of precedence."""

from __future__ import annotations

from collections.abc import Mapping

from presim.cost.collectives.contended import Contended
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measured import Measured, rows_of
from presim.cost.collectives.network_model import NetworkModel
from presim.cost.collectives.statistical import Statistical, parameters_of
from presim.errors import InputError
from presim.hardware import Cluster
from presim.system import plugins

GROUP = "presim.collectives"
_KEYS = ("model", "measured", "link", "fabric", "statistical", "nccl_version")


def collective_models(cluster: Cluster, nccl: Mapping[str, str] | None = None) -> tuple[NetworkModel, ...]:
    """The models of the cluster file, then plug-ins, then the white-box model, which covers everything.

    A table of measurements comes first, then the statistical model if the file has ``model = "statistical"``. If the
    file describes the network, groups that share links are simulated flow by flow.

    A plug-in registers a function of a cluster and NCCL's variables in the entry-point group ``presim.collectives``. It
    returns a `NetworkModel`, or None for clusters that it does not support.

    ``nccl``: NCCL's variables of the script. They do not affect measurements.

    Raises:
        InputError: the file's ``[collectives]`` is invalid.
    """
    section = cluster.collectives
    if unknown := [key for key in section if key not in _KEYS]:
        raise InputError(f"the cluster's [collectives] has an unknown key {unknown[0]}; use one of {', '.join(_KEYS)}")
    models: list[NetworkModel] = []
    if rows := rows_of(section):
        models.append(Measured(rows))
    model_name = section.get("model", "white-box")
    if model_name == "statistical":
        models.append(Statistical(parameters_of(cluster)))
    elif model_name != "white-box":
        raise InputError(
            f'the cluster\'s [collectives] has an unknown model = "{model_name}"; use "white-box" or "statistical"'
        )
    plugin_models = (make(cluster, nccl or {}) for make in plugins.factories(GROUP).values())
    models += [model for model in plugin_models if model is not None]
    base = Hierarchical(nccl)
    return (*models, Contended(base), base) if cluster.network else (*models, base)
