"""Expert parallelism: every rank holds some of the experts; tokens travel to their experts and back.

One rank is rewritten: each of them, if tokens are spread evenly, else the one with the most tokens in every layer.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.sizes import read
from presim.composition.passes.expert_all_to_all import AllToAll
from presim.composition.passes.expert_parameters import GROUPED, check_unsplit_parameters, expert_count, experts, part
from presim.composition.passes.expert_routing import EVEN, ExpertLoad, Routing, load_of
from presim.composition.passes.expert_segment import ExpertSegment, Shapes, Task
from presim.composition.passes.expert_tokens import AllGather, DeepEp
from presim.errors import InputError

Exchange: TypeAlias = Literal["all-to-all", "all-gather", "deepep"]
_SEGMENT_TYPES: dict[str, type[ExpertSegment]] = {"all-to-all": AllToAll, "all-gather": AllGather, "deepep": DeepEp}


def apply(
    graph: OperatorGraph,
    degree: int,
    exchange: Exchange = "all-to-all",
    load: ExpertLoad = EVEN,
    batch: int = 1,
    sequence: int = 1,
) -> OperatorGraph:
    """The graph of one of ``degree`` ranks; unchanged if ``degree`` is 1.

    ``batch``, ``sequence``: sizes of a micro-batch on one rank; sizes of the graph hold for these only, unless the
    load is even and tokens are exchanged by all-to-alls.

    Raises:
        InputError: the model has no experts in grouped products, or they do not divide among the ranks.
    """
    if degree == 1:
        return graph
    expert_names = experts(graph)
    if not expert_names:
        raise InputError(f"{graph.model} has no experts in grouped products; use an expert degree of 1")
    parameters = tuple(
        part(graph, parameter, degree) if (parameter.segment, parameter.name) in expert_names else parameter
        for parameter in graph.parameters
    )
    check_unsplit_parameters(graph, expert_names)
    task = Task(graph, degree, load, Shapes(graph.shapes), batch, sequence)
    rewritten: list[ExpertSegment] = []
    for index, segment in enumerate(graph.segments):
        forward_index = segment.twin if segment.backward else index
        names = {name for segment_index, name in expert_names if segment_index == forward_index}
        rewritten.append(_SEGMENT_TYPES[exchange](task, segment, names, rewritten))
    segments = tuple(expert_segment.segment() for expert_segment in rewritten)
    return msgspec.structs.replace(graph, segments=segments, shapes=tuple(task.shapes.table), parameters=parameters)


def fullest_load(graph: OperatorGraph, routing: Routing, degree: int, batch: int, sequence: int) -> ExpertLoad:
    """The load of the fullest of ``degree`` ranks, each with a micro-batch of ``batch`` samples of ``sequence`` tokens.

    Raises:
        InputError: the routing has loads of another number of experts.
    """
    if routing.is_even:
        return EVEN
    for segment in graph.segments:
        for node in segment.nodes:
            if node.operator == GROUPED and not segment.backward:
                copies = read(graph.shapes[node.inputs[0].shape][0])(batch, sequence)
                tokens = batch * sequence
                return load_of(routing, expert_count(graph), copies // tokens, degree, tokens, segment.count)
    return EVEN
