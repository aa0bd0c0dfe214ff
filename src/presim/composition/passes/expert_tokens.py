"""Exchanges that send a token to a rank once, even if it chose several experts there.

Tokens arrive with their choices and weights. The rank copies a token for each chosen local expert, and sums the
experts' outputs by token before it sends them back. The receiving rank sums them over ranks. `AllGather` follows
Megatron-core's ``MoEAllGatherTokenDispatcher``; `DeepEp` its ``MoEFlexTokenDispatcher``.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, Operand
from presim.composition.graph.sizes import Size, divide, product
from presim.composition.passes.collective_names import ALL_GATHER, COMBINE, DISPATCH, REDUCE_SCATTER, WAIT
from presim.composition.passes.expert_layer import ExpertLayer, backward_layer, forward_layer
from presim.composition.passes.expert_routing import scaled
from presim.composition.passes.expert_segment import GROUP, INDEX, ExpertSegment, ExpertSpan
from presim.trace.even_routing import distinct

_SELECT, _PUT = "aten::masked_select", "aten::masked_scatter_"
_ADD, _SCATTER, _GATHER, _ZEROS = "aten::scatter_add_", "aten::scatter", "aten::gather", "aten::new_zeros"
_CAST = "aten::_to_copy"
_READ = "aten::_local_scalar_dense"  # the host waits for it
_SMS = 20  # of DeepEP's kernels, in its Buffer and in Megatron-core (moe_deepep_num_sms)


class TokenExchange(ExpertSegment):
    """A segment whose ranks exchange whole tokens."""

    def _rewrite(self, spans: Sequence[ExpertSpan]) -> None:
        find_layer = backward_layer if self._segment.backward else forward_layer
        shapes, nodes = self._task.graph.shapes, self._segment.nodes
        layers = [find_layer(self._segment, shapes, span, self._looks_up) for span in spans]
        dropped = {number for layer in layers for number in layer.dropped}
        layers_by_enter, layers_by_leave = (
            {layer.enter: layer for layer in layers},
            {layer.leave: layer for layer in layers},
        )
        for layer in layers:
            self._resize_rows(layer)
        bias_lookups: list[Node] = []  # run after the exchange, on the tokens that arrive
        for number, node in enumerate(nodes):
            if number in layers_by_enter:
                self._enter(layers_by_enter[number])
                self._nodes += map(self._with_local_experts, bias_lookups)
                bias_lookups.clear()
            if number in layers_by_leave:
                self._leave(layers_by_leave[number])
            if number in dropped:
                continue
            if self._looks_up(node) and (node.scope, "rows") not in self.saved_tensors:
                bias_lookups.append(node)
            else:
                self._nodes.append(self._with_local_experts(node))

    def _resize_rows(self, layer: ExpertLayer) -> None:
        rows, within = self._shape(layer.span.tokens_in)[0], range(layer.enter, layer.leave)
        inside = []
        for number, node in enumerate(self._segment.nodes):
            is_inside = number in within or self._looks_up(node)
            if number not in layer.dropped and is_inside and node.scope.startswith(layer.span.scope):
                inside.append(node)
        self._resize(inside, rows, self._received_rows(rows))

    @abc.abstractmethod
    def _arrive(self, layer: ExpertLayer, tokens: Operand) -> Operand:
        """Exchange tokens or gradients; in the forward pass also keep their experts and weights."""

    @abc.abstractmethod
    def _return(self, layer: ExpertLayer, sums: Operand, target: Operand, gradients: Operand | None) -> None:
        """Sum each token over ranks, into ``target``.

        ``gradients``: of weights, shape (own experts, tokens that arrived); None in the forward pass.
        """

    def _enter(self, layer: ExpertLayer) -> None:
        scope, rows = layer.span.scope, self._received_rows(self._shape(layer.span.tokens_in)[0])
        tokens = self._cast(scope, layer.source, layer.span.tokens_in.dtype)
        arrived = self._save(scope, "arrived", self._arrive(layer, tokens))
        if not self._segment.backward:
            self._select_rows(layer, rows)
        inputs, picked = (arrived, self._saved(scope, "rows")), self._with_row_count(layer.rows_in, rows)
        if picked.dtype == arrived.dtype:
            self._add(INDEX, scope, inputs, picked)
        else:
            narrow = self._compute(INDEX, scope, inputs, arrived.dtype, *self._shape(picked))
            self._add(_CAST, scope, (narrow,), picked)

    def _select_rows(self, layer: ExpertLayer, rows: Size) -> None:
        """List the tokens of the local experts, expert by expert."""
        scope, is_chosen, weights = layer.span.scope, *self._choices(layer)
        tokens, local_experts = self._shape(is_chosen)
        counts = self._compute("aten::sum", scope, (is_chosen,), "int64", local_experts)
        self._nodes.append(Node(_READ, scope, (counts,), ()))
        is_chosen_by_expert = self._save(
            scope, "taken", self._compute("aten::clone", scope, (is_chosen,), "bool", local_experts, tokens)
        )
        numbers = self._compute("aten::arange", scope, (), "int64", tokens)
        self._save(scope, "rows", self._compute(_SELECT, scope, (numbers, is_chosen_by_expert), "int64", rows))
        if layer.row_weights is not None:
            by_expert = self._compute("aten::clone", scope, (weights,), weights.dtype, local_experts, tokens)
            self._add(_SELECT, scope, (by_expert, is_chosen_by_expert), self._with_row_count(layer.row_weights, rows))
        self._end_groups(layer.span, counts)

    @abc.abstractmethod
    def _choices(self, layer: ExpertLayer) -> tuple[Operand, Operand]:
        """Whether each token that arrived chose each own expert, and its weight; both (tokens, own experts)."""

    def _leave(self, layer: ExpertLayer) -> None:
        scope = layer.span.scope
        rows = self._cast(scope, self._local_operand(layer.rows_out), layer.span.tokens_in.dtype)
        sums = self._new_tensor(rows.dtype, *self._shape(self.saved_tensors[scope, "arrived"]))
        self._add(_ZEROS, scope, (rows,), sums)
        inputs = sums, self._saved(scope, "rows"), rows
        self._nodes.append(Node(_ADD, scope, inputs, (sums,), written=(0,)))
        gradients = None
        if self._segment.backward and layer.row_weights is not None:
            row_gradients, is_chosen_by_expert = self._local_operand(layer.row_weights), self._saved(scope, "taken")
            gradients = self._compute(
                _ZEROS, scope, (row_gradients,), row_gradients.dtype, *self._shape(is_chosen_by_expert)
            )
            node = Node(_PUT, scope, (gradients, is_chosen_by_expert, row_gradients), (gradients,), written=(0,))
            self._nodes.append(node)
        target = layer.target
        if target.dtype != sums.dtype:
            target = self._new_tensor(sums.dtype, *self._shape(target))
        self._return(layer, sums, target, gradients)
        if target is not layer.target:
            self._add(_CAST, scope, (target,), layer.target)

    def _cast(self, scope: str, operand: Operand, dtype: str) -> Operand:
        """A tensor cast to the type in which tokens are exchanged."""
        if operand.dtype == dtype:
            return operand
        return self._compute(_CAST, scope, (operand,), dtype, *self._shape(operand))

    def _with_row_count(self, operand: Operand, rows: Size) -> Operand:
        """A tensor of the graph, resized to ``rows`` rows."""
        shape = self._shape(operand)
        if shape[0] != rows:
            self._set_rows(operand.value, shape[0], rows)
        return msgspec.structs.replace(operand, shape=self._index(rows, *shape[1:]))

    def _one_hot(self, scope: str, choices: Operand, weights: Operand, experts: Size) -> tuple[Operand, Operand]:
        """Whether each token chose each expert, and with what weight; both (tokens, experts)."""
        tokens = self._shape(choices)[0]
        is_chosen = self._compute(_ZEROS, scope, (choices,), "bool", tokens, experts)
        self._nodes.append(Node(_SCATTER, scope, (is_chosen, choices), (is_chosen,), written=(0,)))
        shares = self._compute(_ZEROS, scope, (weights,), weights.dtype, tokens, experts)
        self._nodes.append(Node(_SCATTER, scope, (shares, choices, weights), (shares,), written=(0,)))
        return is_chosen, shares


class AllGather(TokenExchange):
    """Every rank gets all tokens of its group; sums are reduced and scattered."""

    def _arrive(self, layer: ExpertLayer, tokens: Operand) -> Operand:
        return self._all_gather(layer, tokens)

    def _choices(self, layer: ExpertLayer) -> tuple[Operand, Operand]:
        experts = self._shape(layer.span.offsets)[0]
        self._save(layer.span.scope, "choices", layer.choices)
        is_chosen, shares = self._one_hot(layer.span.scope, layer.choices, layer.weights, experts)
        return self._local_columns(layer, is_chosen), self._local_columns(layer, shares)

    def _local_columns(self, layer: ExpertLayer, all_columns: Operand) -> Operand:
        """The columns of the rank's own experts, of all tokens."""
        gathered = self._all_gather(layer, all_columns)
        tokens, experts = self._shape(gathered)
        part = msgspec.structs.replace(gathered, shape=self._index(tokens, divide(experts, self._degree) or 0))
        self._nodes.append(Node("aten::slice", layer.span.scope, (gathered,), (part,), view=True))
        return part

    def _all_gather(self, layer: ExpertLayer, operand: Operand) -> Operand:
        rows = product([self._shape(operand)[0], self._degree])
        return self._communicate(ALL_GATHER, operand, self._with_rows(operand, rows), layer.span.scope)

    def _return(self, layer: ExpertLayer, sums: Operand, target: Operand, gradients: Operand | None) -> None:
        scope = layer.span.scope
        self._communicate(REDUCE_SCATTER, sums, target, scope)
        if gradients is not None:
            choices = self._saved(scope, "choices")
            local_experts, tokens = self._shape(gradients)
            all_expert_gradients = self._new_tensor(gradients.dtype, tokens, product([local_experts, self._degree]))
            self._add("aten::slice_backward", scope, (gradients,), all_expert_gradients)
            local_token_gradients = self._with_rows(all_expert_gradients, self._shape(choices)[0])
            self._communicate(REDUCE_SCATTER, all_expert_gradients, local_token_gradients, scope)
            self._add(_GATHER, scope, (local_token_gradients, choices), layer.weights)


class DeepEp(TokenExchange):
    """A token goes once to every rank that has one of its experts; the host waits for counts before it does."""

    def _arrive(self, layer: ExpertLayer, tokens: Operand) -> Operand:
        scope, width = layer.span.scope, self._shape(tokens)[1]
        if self._segment.backward:
            arrived = self._new_tensor(tokens.dtype, *self._shape(self._saved(scope, "received"))[:1], width)
            self._exchange(DISPATCH, layer, (tokens,), (arrived,))
            return arrived
        experts, experts_per_token = self._shape(layer.span.offsets)[0], self._shape(layer.choices)[1]
        counts = self._compute("aten::histc", scope, (layer.choices,), "int32", experts)
        self._nodes.append(Node(_READ, scope, (counts,), ()))
        ranks_per_token = distinct(self._degree, self._number(experts), self._number(experts_per_token))
        rows = scaled(self._number(self._shape(tokens)[0]), ranks_per_token * self._load.received)
        arrived = self._new_tensor(tokens.dtype, rows, width)
        ids = self._save(scope, "received", self._new_tensor(layer.choices.dtype, rows, experts_per_token))
        weights = self._save(scope, "weights", self._new_tensor(layer.weights.dtype, rows, experts_per_token))
        self._exchange(DISPATCH, layer, (tokens, layer.choices, layer.weights), (arrived, ids, weights))
        return arrived

    def _choices(self, layer: ExpertLayer) -> tuple[Operand, Operand]:
        scope = layer.span.scope
        local_experts = divide(self._shape(layer.span.offsets)[0], self._degree) or 0
        return self._one_hot(
            scope, self.saved_tensors[scope, "received"], self.saved_tensors[scope, "weights"], local_experts
        )

    def _return(self, layer: ExpertLayer, sums: Operand, target: Operand, gradients: Operand | None) -> None:
        scope = layer.span.scope
        if gradients is None:
            self._exchange(COMBINE, layer, (sums,), (target,))
            return
        received = self._saved(scope, "received")
        local_experts, tokens = self._shape(gradients)
        by_token = self._compute("aten::clone", scope, (gradients,), gradients.dtype, tokens, local_experts)
        shares = self._compute(_GATHER, scope, (by_token, received), gradients.dtype, *self._shape(received))
        self._exchange(COMBINE, layer, (sums, shares), (target, layer.weights))

    def _exchange(
        self, operator: str, layer: ExpertLayer, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]
    ) -> None:
        scope = layer.span.scope
        copies, tokens = (self._number(self._shape(operand)[0]) for operand in (layer.span.tokens_in, layer.source))
        attributes: dict[str, int | str | list[int]] = {
            "group": GROUP,
            "library": "deepep",
            "chosen": copies // tokens,
            "experts": self._number(self._shape(layer.span.offsets)[0]),
            "sms": _SMS,
        }
        self._nodes.append(Node(operator, scope, inputs, outputs, attributes=attributes))
        self._nodes.append(Node(WAIT, scope, (outputs[0],), (), view=True))
