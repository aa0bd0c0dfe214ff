"""Exchange of tokens by all-to-alls, a token once for each of its experts, as torchtitan does.

Ranks exchange token counts, the host waits for these counts, tokens are exchanged, sorted by expert, and multiplied in
groups by the rank's own experts. Results travel back the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from presim.graph.schema import Node, Operand
from presim.graph.sizes import Size, divide
from presim.passes.collectives import ALL_TO_ALL
from presim.passes.expert_segment import INDEX, PUT, ExpertSegment, Place


class AllToAll(ExpertSegment):
    """A segment whose ranks exchange rows of tokens."""

    def _rewrite(self, places: Sequence[Place]) -> None:
        for place in places:
            self._resize_rows(place)
        starts, ends = {one.first: one for one in places}, {one.last: one for one in places}
        early: list[Node] = []  # of biases, which are looked up for the tokens that arrive
        for number, node in enumerate(self._segment.nodes):
            if number in starts:
                self._dispatch(starts[number])
                self._nodes += map(self._own, early)
                early.clear()
            if not self._segment.backward and any(one.value in self._offsets for one in node.outputs):
                continue  # recomputed for the rank's own experts
            if self._looks_up(node) and (node.scope, "order") not in self.kept:
                early.append(node)
                continue
            self._nodes.append(self._own(node))
            if number in ends:
                self._combine(ends[number])

    def _resize_rows(self, place: Place) -> None:
        """Give other rows to what the experts see, and to what is sent to them, where routing is not even."""
        nodes, rows = self._segment.nodes, self._shape(place.tokens_in)[0]
        begin, end = self._outside(place)
        inside, outside = list[Node](), list[Node]()
        for number, node in enumerate(nodes):
            if node.scope.startswith(place.scope):
                if place.first <= number <= place.last or self._looks_up(node):
                    inside.append(node)
                elif begin <= number < end:
                    outside.append(node)
        self._resize(inside, rows, self._received(rows))
        self._resize(outside, rows, self._sent(rows))

    def _outside(self, place: Place) -> tuple[int, int]:
        """The first node that makes rows to be sent, and the first behind those that read rows that came back."""
        nodes = list(enumerate(self._segment.nodes))
        own = [(number, node) for number, node in nodes if node.scope == place.scope and not self._looks_up(node)]
        if not self._segment.backward:
            picks = [number for number, node in own if node.operator == INDEX]
            return picks[0], next((number for number in picks if number > place.last), len(nodes))
        puts = [node for number, node in own if node.operator == PUT and number < place.first]
        zeros = puts[0].inputs[0].value if puts else place.tokens_in.value  # of the first rows that are sent
        return next(number for number, node in own if any(one.value == zeros for one in node.outputs)), place.first

    def _dispatch(self, place: Place) -> None:
        tokens_in, scope = self._renewed(place.tokens_in), place.scope
        sent, received = self._shape(tokens_in)[0], self._received(self._shape(place.tokens_in)[0])
        split = self._split(sent, received)
        if self._segment.backward:
            order = self._saved(scope, "order")
            arrived = self._exchanged(tokens_in, received, scope, **split)
        else:
            counts = self._counted(place)
            arrived = self._exchanged(tokens_in, received, scope, **split)
            order = self._ordered(counts, place, received)
        rows = self._with_rows(tokens_in, received)
        self._add(INDEX, scope, (arrived, order), rows)
        self._replace(place.tokens_in, rows)

    def _combine(self, place: Place) -> None:
        scope, order = place.scope, self._saved(place.scope, "order")
        received = self._received(self._shape(place.made)[0])
        made = msgspec.structs.replace(place.made, shape=self._index(received, *self._shape(place.made)[1:]))
        rows = self._with_rows(place.made, received)
        if self._segment.backward:  # gradient of sorting tokens by expert
            zeros = self._with_rows(place.made, received)
            self._add("aten::new_zeros", scope, (made,), zeros)
            self._add(PUT, scope, (zeros, order, made), rows, accumulate=1)
        else:
            self._add("aten::new_empty", scope, (made,), rows)
            node = Node("aten::index_put_", scope, (rows, order, made), (rows,), written=(0,))
            self._nodes.append(msgspec.structs.replace(node, attributes={"accumulate": 0}))
        sent = self._sent(self._shape(place.made)[0])
        split = self._split(sent, received, back=True)
        self._replace(place.made, self._exchanged(rows, sent, scope, **split))

    def _exchanged(self, operand: Operand, rows: Size, scope: str, **split: list[int]) -> Operand:
        return self._communicated(ALL_TO_ALL, operand, self._with_rows(operand, rows), scope, **split)

    def _counted(self, place: Place) -> Operand:
        """Exchange token counts per expert; the host waits for the sums."""
        scope = place.scope
        summed = next(
            node for node in self._segment.nodes if any(one.value == place.offsets.value for one in node.outputs)
        )
        sent = summed.inputs[0]
        received = self._exchanged(sent, self._shape(sent)[0], scope)
        for one, operator in ((sent, "experts::splits"), (received, "aten::_local_scalar_dense")):
            sums = self._new(one.dtype, self._degree)
            self._add("aten::sum", scope, (self._matrix(one),), sums, dim=[1], keepdim=0)
            self._nodes.append(Node(operator, scope, (sums,), ()))
        return received

    def _ordered(self, counts: Operand, place: Place, total: Size) -> Operand:
        """Build the index that sorts tokens by expert from the received counts, with torchtitan's operators."""
        scope, experts = place.scope, self._shape(counts)[0]

        def few(operator: str, *inputs: Operand) -> Operand:
            return self._made(operator, scope, inputs, counts.dtype, experts)

        def many(operator: str, *inputs: Operand) -> Operand:
            return self._made(operator, scope, inputs, "int64", total)

        starts = few("aten::clone", few("aten::sub", few("aten::cumsum", counts), counts))
        lengths = few("aten::clone", counts)
        ends = few("aten::sub", few("aten::cumsum", lengths), lengths)
        groups = many("aten::repeat_interleave", few("aten::arange"), lengths)
        first = many(INDEX, starts, groups)
        added = many("aten::add", first, many("aten::arange"))
        order = many("aten::sub", added, many(INDEX, ends, groups))
        own = divide(experts, self._degree) or 0
        sums = self._new(counts.dtype, own)
        self._add("aten::sum", scope, (self._matrix(counts),), sums, dim=[0], keepdim=0)
        self._end_groups(place, sums)
        return self._save(scope, "order", order)

    def _matrix(self, counts: Operand) -> Operand:
        """The counts as a matrix of rank by expert."""
        own = divide(self._shape(counts)[0], self._degree) or 0
        return msgspec.structs.replace(counts, shape=self._index(self._degree, own), stride=self._index(own, 1))
