"""Exchange of tokens by all-to-alls, a token once for each of its experts, as torchtitan does.

Ranks exchange token counts, the host waits for these counts, tokens are exchanged, sorted by expert, and multiplied in
groups by the rank's own experts. Results travel back the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, Operand
from presim.composition.graph.sizes import Size, divide
from presim.composition.passes.collective_names import ALL_TO_ALL
from presim.composition.passes.expert_segment import INDEX, PUT, ExpertSegment, ExpertSpan


class AllToAll(ExpertSegment):
    """A segment whose ranks exchange rows of tokens."""

    def _rewrite(self, spans: Sequence[ExpertSpan]) -> None:
        for span in spans:
            self._resize_rows(span)
        spans_by_first, spans_by_last = {span.first: span for span in spans}, {span.last: span for span in spans}
        bias_lookups: list[Node] = []  # run after the exchange, on the tokens that arrive
        for number, node in enumerate(self._segment.nodes):
            if number in spans_by_first:
                self._dispatch(spans_by_first[number])
                self._nodes += map(self._with_local_experts, bias_lookups)
                bias_lookups.clear()
            if not self._segment.backward and any(operand.value in self._offsets for operand in node.outputs):
                continue  # recomputed for the rank's own experts
            if self._looks_up(node) and (node.scope, "order") not in self.saved_tensors:
                bias_lookups.append(node)
                continue
            self._nodes.append(self._with_local_experts(node))
            if number in spans_by_last:
                self._combine(spans_by_last[number])

    def _resize_rows(self, span: ExpertSpan) -> None:
        """Change the number of rows that experts receive and that ranks send, if routing is uneven."""
        nodes, rows = self._segment.nodes, self._shape(span.tokens_in)[0]
        sent_begin, sent_end = self._sent_range(span)
        inside, outside = list[Node](), list[Node]()
        for number, node in enumerate(nodes):
            if node.scope.startswith(span.scope):
                if span.first <= number <= span.last or self._looks_up(node):
                    inside.append(node)
                elif sent_begin <= number < sent_end:
                    outside.append(node)
        self._resize(inside, rows, self._received_rows(rows))
        self._resize(outside, rows, self._sent_rows(rows))

    def _sent_range(self, span: ExpertSpan) -> tuple[int, int]:
        """Numbers of the first node that produces rows to send, and of the first node after the combined rows."""
        nodes = list(enumerate(self._segment.nodes))
        expert_nodes = [
            (number, node) for number, node in nodes if node.scope == span.scope and not self._looks_up(node)
        ]
        if not self._segment.backward:
            index_numbers = [number for number, node in expert_nodes if node.operator == INDEX]
            return index_numbers[0], next((number for number in index_numbers if number > span.last), len(nodes))
        put_nodes = [node for number, node in expert_nodes if node.operator == PUT and number < span.first]
        zeros = put_nodes[0].inputs[0].value if put_nodes else span.tokens_in.value  # of the first rows that are sent
        return next(
            number for number, node in expert_nodes if any(operand.value == zeros for operand in node.outputs)
        ), span.first

    def _dispatch(self, span: ExpertSpan) -> None:
        tokens_in, scope = self._local_operand(span.tokens_in), span.scope
        sent, received = self._shape(tokens_in)[0], self._received_rows(self._shape(span.tokens_in)[0])
        split = self._rows_by_rank(sent, received)
        if self._segment.backward:
            order = self._saved(scope, "order")
            arrived = self._exchange(tokens_in, received, scope, **split)
        else:
            counts = self._exchange_counts(span)
            arrived = self._exchange(tokens_in, received, scope, **split)
            order = self._sorting_index(counts, span, received)
        rows = self._with_rows(tokens_in, received)
        self._add(INDEX, scope, (arrived, order), rows)
        self._replace(span.tokens_in, rows)

    def _combine(self, span: ExpertSpan) -> None:
        scope, order = span.scope, self._saved(span.scope, "order")
        received = self._received_rows(self._shape(span.tokens_out)[0])
        tokens_out = msgspec.structs.replace(
            span.tokens_out, shape=self._index(received, *self._shape(span.tokens_out)[1:])
        )
        rows = self._with_rows(span.tokens_out, received)
        if self._segment.backward:  # gradient of sorting tokens by expert
            zeros = self._with_rows(span.tokens_out, received)
            self._add("aten::new_zeros", scope, (tokens_out,), zeros)
            self._add(PUT, scope, (zeros, order, tokens_out), rows, accumulate=1)
        else:
            self._add("aten::new_empty", scope, (tokens_out,), rows)
            node = Node("aten::index_put_", scope, (rows, order, tokens_out), (rows,), written=(0,))
            self._nodes.append(msgspec.structs.replace(node, attributes={"accumulate": 0}))
        sent = self._sent_rows(self._shape(span.tokens_out)[0])
        split = self._rows_by_rank(sent, received, back=True)
        self._replace(span.tokens_out, self._exchange(rows, sent, scope, **split))

    def _exchange(self, operand: Operand, rows: Size, scope: str, **split: list[int]) -> Operand:
        return self._communicate(ALL_TO_ALL, operand, self._with_rows(operand, rows), scope, **split)

    def _exchange_counts(self, span: ExpertSpan) -> Operand:
        """Exchange token counts per expert; the host waits for the sums."""
        scope = span.scope
        cumsum_node = next(
            node for node in self._segment.nodes if any(operand.value == span.offsets.value for operand in node.outputs)
        )
        sent_counts = cumsum_node.inputs[0]
        received_counts = self._exchange(sent_counts, self._shape(sent_counts)[0], scope)
        for counts, operator in ((sent_counts, "experts::splits"), (received_counts, "aten::_local_scalar_dense")):
            sums = self._new_tensor(counts.dtype, self._degree)
            self._add("aten::sum", scope, (self._matrix(counts),), sums, dim=[1], keepdim=0)
            self._nodes.append(Node(operator, scope, (sums,), ()))
        return received_counts

    def _sorting_index(self, counts: Operand, span: ExpertSpan, total: Size) -> Operand:
        """Build the index that sorts tokens by expert from the received counts, with torchtitan's operators."""
        scope, experts = span.scope, self._shape(counts)[0]

        def by_expert(operator: str, *inputs: Operand) -> Operand:
            return self._compute(operator, scope, inputs, counts.dtype, experts)

        def by_row(operator: str, *inputs: Operand) -> Operand:
            return self._compute(operator, scope, inputs, "int64", total)

        starts = by_expert("aten::clone", by_expert("aten::sub", by_expert("aten::cumsum", counts), counts))
        lengths = by_expert("aten::clone", counts)
        length_offsets = by_expert("aten::sub", by_expert("aten::cumsum", lengths), lengths)
        groups = by_row("aten::repeat_interleave", by_expert("aten::arange"), lengths)
        first = by_row(INDEX, starts, groups)
        added = by_row("aten::add", first, by_row("aten::arange"))
        order = by_row("aten::sub", added, by_row(INDEX, length_offsets, groups))
        local_experts = divide(experts, self._degree) or 0
        sums = self._new_tensor(counts.dtype, local_experts)
        self._add("aten::sum", scope, (self._matrix(counts),), sums, dim=[0], keepdim=0)
        self._end_groups(span, sums)
        return self._save(scope, "order", order)

    def _matrix(self, counts: Operand) -> Operand:
        """The counts as a matrix of rank by expert."""
        local_experts = divide(self._shape(counts)[0], self._degree) or 0
        return msgspec.structs.replace(
            counts, shape=self._index(self._degree, local_experts), stride=self._index(local_experts, 1)
        )
