"""Exchanges that move a token once, whatever the number of its experts on a rank.

Tokens arrive whole, with their choices and weights. The rank copies a token for each of its experts that was chosen,
and sums the experts' outputs by token before they travel back, where they are summed over ranks. `AllGather` follows
Megatron-core's ``MoEAllGatherTokenDispatcher``; `DeepEp` its ``MoEFlexTokenDispatcher``.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import msgspec

from presim.graph.schema import Node, Operand
from presim.graph.sizes import Size, divide, product
from presim.passes.collectives import ALL_GATHER, COMBINE, DISPATCH, REDUCE_SCATTER, WAIT
from presim.passes.expert_layer import Layer, backward_layer, forward_layer
from presim.passes.expert_routing import scaled
from presim.passes.expert_segment import GROUP, INDEX, ExpertSegment, Place
from presim.trace.routing import distinct

_SELECT, _PUT = "aten::masked_select", "aten::masked_scatter_"
_ADD, _SCATTER, _GATHER, _ZEROS = "aten::scatter_add_", "aten::scatter", "aten::gather", "aten::new_zeros"
_CAST = "aten::_to_copy"
_READ = "aten::_local_scalar_dense"  # the host waits for it
_SMS = 20  # of DeepEP's kernels, in its Buffer and in Megatron-core (moe_deepep_num_sms)


class TokenExchange(ExpertSegment):
    """A segment whose ranks exchange whole tokens."""

    def _rewrite(self, places: Sequence[Place]) -> None:
        find = backward_layer if self._segment.backward else forward_layer
        shapes, nodes = self._task.graph.shapes, self._segment.nodes
        layers = [find(self._segment, shapes, place, self._looks_up) for place in places]
        dropped = {number for one in layers for number in one.dropped}
        enters, leaves = {one.enter: one for one in layers}, {one.leave: one for one in layers}
        for one in layers:
            self._resize_rows(one)
        early: list[Node] = []  # of biases, which are looked up for the tokens that arrive
        for number, node in enumerate(nodes):
            if number in enters:
                self._enter(enters[number])
                self._nodes += map(self._own, early)
                early.clear()
            if number in leaves:
                self._leave(leaves[number])
            if number in dropped:
                continue
            if self._looks_up(node) and (node.scope, "rows") not in self.kept:
                early.append(node)
            else:
                self._nodes.append(self._own(node))

    def _resize_rows(self, layer: Layer) -> None:
        rows, within = self._shape(layer.place.tokens_in)[0], range(layer.enter, layer.leave)
        inside = []
        for number, node in enumerate(self._segment.nodes):
            is_inside = number in within or self._looks_up(node)
            if number not in layer.dropped and is_inside and node.scope.startswith(layer.place.scope):
                inside.append(node)
        self._resize(inside, rows, self._received(rows))

    @abc.abstractmethod
    def _arrive(self, layer: Layer, tokens: Operand) -> Operand:
        """Exchange tokens, or gradients; keep which experts they chose, and with what weights, in the forward pass."""

    @abc.abstractmethod
    def _return(self, layer: Layer, sums: Operand, target: Operand, gradients: Operand | None) -> None:
        """Sum each token over ranks, into ``target``.

        ``gradients``: of weights, shape (own experts, tokens that arrived); None in the forward pass.
        """

    def _enter(self, layer: Layer) -> None:
        scope, rows = layer.place.scope, self._received(self._shape(layer.place.tokens_in)[0])
        tokens = self._cast(scope, layer.source, layer.place.tokens_in.dtype)
        arrived = self._save(scope, "arrived", self._arrive(layer, tokens))
        if not self._segment.backward:
            self._pick(layer, rows)
        inputs, picked = (arrived, self._saved(scope, "rows")), self._with_own_rows(layer.rows_in, rows)
        if picked.dtype == arrived.dtype:
            self._add(INDEX, scope, inputs, picked)
        else:
            narrow = self._made(INDEX, scope, inputs, arrived.dtype, *self._shape(picked))
            self._add(_CAST, scope, (narrow,), picked)

    def _pick(self, layer: Layer, rows: Size) -> None:
        """Which tokens the rank's own experts get, one expert after the other."""
        scope, chosen, weights = layer.place.scope, *self._choices(layer)
        tokens, own = self._shape(chosen)
        counts = self._made("aten::sum", scope, (chosen,), "int64", own)
        self._nodes.append(Node(_READ, scope, (counts,), ()))
        taken = self._save(scope, "taken", self._made("aten::clone", scope, (chosen,), "bool", own, tokens))
        numbers = self._made("aten::arange", scope, (), "int64", tokens)
        self._save(scope, "rows", self._made(_SELECT, scope, (numbers, taken), "int64", rows))
        if layer.row_weights is not None:
            by_expert = self._made("aten::clone", scope, (weights,), weights.dtype, own, tokens)
            self._add(_SELECT, scope, (by_expert, taken), self._with_own_rows(layer.row_weights, rows))
        self._end_groups(layer.place, counts)

    @abc.abstractmethod
    def _choices(self, layer: Layer) -> tuple[Operand, Operand]:
        """Whether each token that arrived chose each own expert, and its weight; both (tokens, own experts)."""

    def _leave(self, layer: Layer) -> None:
        scope = layer.place.scope
        rows = self._cast(scope, self._renewed(layer.rows_out), layer.place.tokens_in.dtype)
        sums = self._new(rows.dtype, *self._shape(self.kept[scope, "arrived"]))
        self._add(_ZEROS, scope, (rows,), sums)
        inputs = sums, self._saved(scope, "rows"), rows
        self._nodes.append(Node(_ADD, scope, inputs, (sums,), written=(0,)))
        gradients = None
        if self._segment.backward and layer.row_weights is not None:
            of_rows, taken = self._renewed(layer.row_weights), self._saved(scope, "taken")
            gradients = self._made(_ZEROS, scope, (of_rows,), of_rows.dtype, *self._shape(taken))
            node = Node(_PUT, scope, (gradients, taken, of_rows), (gradients,), written=(0,))
            self._nodes.append(node)
        target = layer.target
        if target.dtype != sums.dtype:
            target = self._new(sums.dtype, *self._shape(target))
        self._return(layer, sums, target, gradients)
        if target is not layer.target:
            self._add(_CAST, scope, (target,), layer.target)

    def _cast(self, scope: str, operand: Operand, dtype: str) -> Operand:
        """A tensor in the tokens' type, in which they travel."""
        if operand.dtype == dtype:
            return operand
        return self._made(_CAST, scope, (operand,), dtype, *self._shape(operand))

    def _with_own_rows(self, operand: Operand, rows: Size) -> Operand:
        """A tensor of the graph that now has so many rows."""
        shape = self._shape(operand)
        if shape[0] != rows:
            self._set_rows(operand.value, shape[0], rows)
        return msgspec.structs.replace(operand, shape=self._index(rows, *shape[1:]))

    def _one_hot(self, scope: str, choices: Operand, weights: Operand, experts: Size) -> tuple[Operand, Operand]:
        """Which of the experts each token chose, and with what weight; both (tokens, experts)."""
        tokens = self._shape(choices)[0]
        taken = self._made(_ZEROS, scope, (choices,), "bool", tokens, experts)
        self._nodes.append(Node(_SCATTER, scope, (taken, choices), (taken,), written=(0,)))
        shares = self._made(_ZEROS, scope, (weights,), weights.dtype, tokens, experts)
        self._nodes.append(Node(_SCATTER, scope, (shares, choices, weights), (shares,), written=(0,)))
        return taken, shares


class AllGather(TokenExchange):
    """Every rank gets all tokens of its group; sums are reduced and scattered."""

    def _arrive(self, layer: Layer, tokens: Operand) -> Operand:
        return self._gathered(layer, tokens)

    def _choices(self, layer: Layer) -> tuple[Operand, Operand]:
        experts = self._shape(layer.place.offsets)[0]
        self._save(layer.place.scope, "choices", layer.choices)
        taken, shares = self._one_hot(layer.place.scope, layer.choices, layer.weights, experts)
        return self._own_part(layer, taken), self._own_part(layer, shares)

    def _own_part(self, layer: Layer, of_all: Operand) -> Operand:
        """The columns of the rank's own experts, of all tokens."""
        gathered = self._gathered(layer, of_all)
        tokens, experts = self._shape(gathered)
        part = msgspec.structs.replace(gathered, shape=self._index(tokens, divide(experts, self._degree) or 0))
        self._nodes.append(Node("aten::slice", layer.place.scope, (gathered,), (part,), view=True))
        return part

    def _gathered(self, layer: Layer, operand: Operand) -> Operand:
        rows = product([self._shape(operand)[0], self._degree])
        return self._communicated(ALL_GATHER, operand, self._with_rows(operand, rows), layer.place.scope)

    def _return(self, layer: Layer, sums: Operand, target: Operand, gradients: Operand | None) -> None:
        scope = layer.place.scope
        self._communicated(REDUCE_SCATTER, sums, target, scope)
        if gradients is not None:
            choices = self._saved(scope, "choices")
            own, tokens = self._shape(gradients)
            whole = self._new(gradients.dtype, tokens, product([own, self._degree]))
            self._add("aten::slice_backward", scope, (gradients,), whole)
            mine = self._with_rows(whole, self._shape(choices)[0])
            self._communicated(REDUCE_SCATTER, whole, mine, scope)
            self._add(_GATHER, scope, (mine, choices), layer.weights)


class DeepEp(TokenExchange):
    """A token goes once to every rank that has one of its experts; the host waits for counts before it does."""

    def _arrive(self, layer: Layer, tokens: Operand) -> Operand:
        scope, width = layer.place.scope, self._shape(tokens)[1]
        if self._segment.backward:
            arrived = self._new(tokens.dtype, *self._shape(self._saved(scope, "received"))[:1], width)
            self._exchanged(DISPATCH, layer, (tokens,), (arrived,))
            return arrived
        experts, chosen = self._shape(layer.place.offsets)[0], self._shape(layer.choices)[1]
        counts = self._made("aten::histc", scope, (layer.choices,), "int32", experts)
        self._nodes.append(Node(_READ, scope, (counts,), ()))
        places = distinct(self._degree, self._number(experts), self._number(chosen))
        rows = scaled(self._number(self._shape(tokens)[0]), places * self._load.received)
        arrived = self._new(tokens.dtype, rows, width)
        ids = self._save(scope, "received", self._new(layer.choices.dtype, rows, chosen))
        weights = self._save(scope, "weights", self._new(layer.weights.dtype, rows, chosen))
        self._exchanged(DISPATCH, layer, (tokens, layer.choices, layer.weights), (arrived, ids, weights))
        return arrived

    def _choices(self, layer: Layer) -> tuple[Operand, Operand]:
        scope = layer.place.scope
        own = divide(self._shape(layer.place.offsets)[0], self._degree) or 0
        return self._one_hot(scope, self.kept[scope, "received"], self.kept[scope, "weights"], own)

    def _return(self, layer: Layer, sums: Operand, target: Operand, gradients: Operand | None) -> None:
        scope = layer.place.scope
        if gradients is None:
            self._exchanged(COMBINE, layer, (sums,), (target,))
            return
        received = self._saved(scope, "received")
        own, tokens = self._shape(gradients)
        by_token = self._made("aten::clone", scope, (gradients,), gradients.dtype, tokens, own)
        shares = self._made(_GATHER, scope, (by_token, received), gradients.dtype, *self._shape(received))
        self._exchanged(COMBINE, layer, (sums, shares), (target, layer.weights))

    def _exchanged(
        self, operator: str, layer: Layer, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]
    ) -> None:
        scope = layer.place.scope
        copies, tokens = (self._number(self._shape(one)[0]) for one in (layer.place.tokens_in, layer.source))
        attributes: dict[str, int | str | list[int]] = {
            "group": GROUP,
            "library": "deepep",
            "chosen": copies // tokens,
            "experts": self._number(self._shape(layer.place.offsets)[0]),
            "sms": _SMS,
        }
        self._nodes.append(Node(operator, scope, inputs, outputs, attributes=attributes))
        self._nodes.append(Node(WAIT, scope, (outputs[0],), (), view=True))
