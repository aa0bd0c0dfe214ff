"""The all-reduce of tied parameters' gradients between a pipeline's first and last stage, once a step.

Megatron-LM does so behind the data-parallel reduction (`finalize_model_grads`), of whole gradients. Where gradients are
sharded, each rank has its shard of both.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.entry_templates import Rows, Tables
from presim.composition.graph.graph_schema import Parameter
from presim.composition.graph.parameters import elements
from presim.composition.host_gaps import HostTimes
from presim.composition.schedule import Do
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Phase
from presim.trace.signatures import Collective

GROUP = "embedding"


def reduce_tied_gradients(
    copies: Sequence[Parameter], group: int, sharers: int, dtype: str, tables: Tables, hosts: HostTimes
) -> list[Do]:
    """The actions; ``sharers``: ranks that share a gradient; ``dtype``: its type."""
    rows = Rows(tables, hosts, Phase.BACKWARD)
    for parameter in copies:
        part = -(-elements(parameter) // sharers) * dtype_bytes(dtype)
        rows.work("nccl::all_reduce", Collective("all_reduce", part, dtype, group))
    return [Do(rows.template(), ())]
