"""A graph in pipeline stages: which blocks each has, and what passes between neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.compose.schedule import Key, Run, value_key
from presim.errors import InputError
from presim.graph.schema import OperatorGraph, Origin
from presim.graph.sizes import read

_CONSTANT_BYTES = 1 << 20  # a message that does not grow with the batch and is larger: the gradient of a parameter


@dataclasses.dataclass(frozen=True)
class Crossing:
    """A storage that one stage makes and a later one uses."""

    segment: int
    block: int
    index: int

    def key(self, micro: int) -> Key:
        """What it is called within a step."""
        return (micro, self.segment, self.block, False, self.index)


@dataclasses.dataclass(frozen=True)
class Stage:
    """What one stage runs for a micro-batch."""

    forward: tuple[tuple[int, int], ...]  # (segment, block), in order
    backward: tuple[tuple[int, int], ...]
    weights: tuple[tuple[int, int], ...] = ()  # gradients of weights, where they are apart
    came: tuple[Crossing, ...] = ()  # activations from the stage before
    gradients: tuple[Crossing, ...] = ()  # from the stage after


def blocks(graph: OperatorGraph) -> int:
    """How many repeated blocks the forward pass has."""
    return sum(segment.count for segment in graph.segments if segment.name and not segment.backward)


def even(count: int, stages: int) -> tuple[int, ...]:
    """Blocks of each stage: as equal as can be; the first and the last, with embedding and head, have fewer."""
    each, more = divmod(count, stages)
    order = sorted(range(stages), key=lambda stage: (stage in (0, stages - 1), stage == 0, stage))
    larger = set(order[:more])
    return tuple(each + (stage in larger) for stage in range(stages))


def split(graph: OperatorGraph, sizes: Sequence[int]) -> list[Stage]:
    """The stages that have so many blocks each.

    Raises:
        InputError: the first and the last stage share a parameter.
    """
    home = _homes(graph, sizes)
    stages = []
    for stage in range(len(sizes)):
        passes: tuple[list[tuple[int, int]], ...] = ([], [], [])
        for index, segment in enumerate(graph.segments):
            if segment.shared:
                continue
            order = range(segment.count - 1, -1, -1) if segment.backward else range(segment.count)
            own = ((index, block) for block in order if home[index, block] == stage)
            passes[segment.backward + segment.weights].extend(own)
        stages.append(Stage(tuple(passes[0]), tuple(passes[1]), tuple(passes[2])))
    crossing = _crossing(graph, stages, home)
    return [
        dataclasses.replace(
            stage,
            came=tuple(one for one, (made, last) in crossing.items() if made < place <= last),
            gradients=tuple(one for one, (made, last) in crossing.items() if made > place >= last),
        )
        for place, stage in enumerate(stages)
    ]


def _homes(graph: OperatorGraph, sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """(segment, block) -> its stage; what lies between blocks goes with the one before it in the forward pass."""
    stage_of = [stage for stage, size in enumerate(sizes) for _ in range(size)]
    home: dict[tuple[int, int], int] = {}
    passed, last = 0, len(sizes) - 1
    total = len(stage_of)
    for index, segment in enumerate(graph.segments):
        if segment.backward:
            continue
        for block in range(segment.count):
            if segment.name:
                home[index, block] = stage_of[passed]
                passed += 1
            else:
                home[index, block] = 0 if not passed else last if passed == total else stage_of[passed - 1]
    left = total
    for index, segment in enumerate(graph.segments):
        if not segment.backward:
            continue
        if segment.name:
            home |= {(index, block): home[segment.twin, block] for block in range(segment.count)}
            left = min(left, sum(_before(graph, segment.twin)))
        else:
            home[index, 0] = last if left == total else 0 if not left else stage_of[left - 1]
    return home


def _before(graph: OperatorGraph, twin: int) -> list[int]:
    return [one.count for one in graph.segments[:twin] if one.name and not one.backward]


def _crossing(
    graph: OperatorGraph, stages: list[Stage], home: dict[tuple[int, int], int]
) -> dict[Crossing, tuple[int, int]]:
    """What crosses -> the stage that makes it, and the last that uses it."""
    found: dict[Crossing, tuple[int, int]] = {}
    for place, stage in enumerate(stages):
        for segment, block in (*stage.forward, *stage.backward, *stage.weights):
            whole = graph.segments[segment]
            for index, value in enumerate(whole.values):
                if value.origin not in (Origin.SEGMENT, Origin.CARRY) or whole.twin == value.segment:
                    continue
                key = value_key(graph, Run(segment, block), index)
                if key is None or graph.segments[int(str(key[1]))].shared:
                    continue
                one = Crossing(int(str(key[1])), int(str(key[2])), int(str(key[4])))
                made = home[one.segment, one.block]
                if made == place:
                    continue
                _check(graph, one)
                furthest = min if graph.segments[one.segment].backward else max
                found[one] = (made, furthest(place, found.get(one, (made, place))[1]))
    return found


def _check(graph: OperatorGraph, crossing: Crossing) -> None:
    size = graph.segments[crossing.segment].values[crossing.index].bytes
    if crossing and len(read(size).terms) == 1 and read(size).terms[0][1:] == (0, 0) and int(size) > _CONSTANT_BYTES:
        raise InputError(
            f"{graph.model} ties parameters of its first and its last stage (a gradient of {int(size):,} bytes would "
            "pass between them), which is not composed; use a pipeline of 1, or untie them in the model's config"
        )
