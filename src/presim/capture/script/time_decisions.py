"""Follow a time through the source of the code that reads it, to the branch that it decides.

It is followed through arithmetic, comparisons, conversions, variables, attributes of `self`, parameters and results of
functions of the same file, and into the caller that it is returned to. What it may do elsewhere does not count: unlike
a read of the rank, a time is named only where a branch is seen that depends on it. A branch that only prints, logs or
computes with times is none; what it assigns is followed instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from types import FrameType

from presim.capture.script.expressions import Function, ScriptSource, current_expression
from presim.capture.script.value_uses import COLLECTING, CONVERSIONS, PRINTED_CALLS, is_printing, last_name

_TENSORS = ("tensor", "as_tensor", "Tensor")
_LOGGERS = frozenset(("log", "log_metrics", "log_dict", "add_scalar", "add_scalars", "write", "flush"))
_CLOCKS = frozenset(("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now"))
_HARMLESS_CALLS = (
    PRINTED_CALLS | _CLOCKS | {"items", "keys", "values", "get", "memory_allocated", "max_memory_allocated"}
)


def deciding_line(frame: FrameType) -> str:
    """The branch that depends on the time that a frame's current expression reads, as ``file.py:12``; else empty."""
    current = current_expression(frame)
    return _TimeUses(current[0], frame.f_code.co_filename, frame).branch(current[1]) if current else ""


def deciding_line_in(source: ScriptSource, file: str, expression: ast.expr) -> str:
    """The same for an expression of a file."""
    return _TimeUses(source, file, None).branch(expression)


class _TimeUses:
    """The uses of one time within a file. Each expression that carries it is visited once."""

    def __init__(self, source: ScriptSource, file: str, frame: FrameType | None) -> None:
        self.source, self.file = source, file
        self.frame = frame  # of the function that reads the time
        self._visited: set[ast.AST] = set()

    def branch(self, node: ast.AST) -> str:
        """The first branch that an expression decides, as ``file.py:12``; empty: none is seen."""
        if node in self._visited:
            return ""
        self._visited.add(node)
        parent = self.source.parents[node]
        handle = getattr(self, f"_{type(parent).__name__}", None)
        return str(handle(parent, node)) if handle else ""

    def _first(self, nodes: Iterable[ast.AST]) -> str:
        return next(filter(None, map(self.branch, nodes)), "")

    # One method for each kind of parent node.

    def _passed_on(self, parent: ast.AST, node: ast.AST) -> str:
        return self.branch(parent)

    _UnaryOp = _BinOp = _BoolOp = _IfExp = _List = _passed_on

    def _Compare(self, parent: ast.Compare, node: ast.AST) -> str:
        compared = [other for other in (parent.left, *parent.comparators) if other is not node]
        is_guard = all(isinstance(other, ast.Constant) and not other.value for other in compared)
        return "" if is_guard else self.branch(parent)  # `if seconds > 0` before a division decides nothing

    def _If(self, parent: ast.If | ast.While, node: ast.AST) -> str:
        if node is not parent.test:
            return ""
        statements = [*parent.body, *parent.orelse]
        if not all(map(_is_harmless, statements)):
            return f"{self.file}:{parent.lineno}"
        assignments = (inner for statement in statements for inner in ast.walk(statement))
        return next(filter(None, (self._branch_of_assignment(inner) for inner in assignments)), "")

    _While = _If

    def _branch_of_assignment(self, statement: ast.AST) -> str:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        return next(filter(None, (self._target(target) for target in targets if target is not None)), "")

    def _Assign(self, parent: ast.Assign | ast.AnnAssign | ast.AugAssign, node: ast.AST) -> str:
        return self._branch_of_assignment(parent)

    _AnnAssign = _AugAssign = _Assign

    def _NamedExpr(self, parent: ast.NamedExpr, node: ast.AST) -> str:
        return self._target(parent.target) or self.branch(parent)

    def _Tuple(self, parent: ast.Tuple, node: ast.AST) -> str:
        """One of several values that are assigned at once."""
        assignment, index = self.source.parents[parent], parent.elts.index(node)  # type: ignore[arg-type]  # its parent
        targets = assignment.targets if isinstance(assignment, ast.Assign) else []
        pairs = (target.elts for target in targets if isinstance(target, ast.Tuple))
        return next(filter(None, (self._target(pair[index]) for pair in pairs if len(pair) == len(parent.elts))), "")

    def _target(self, target: ast.AST) -> str:
        if isinstance(target, ast.Name):
            return self._first(self.source.loads(target.id, self.source.variable_scope(target)))
        if isinstance(target, ast.Attribute) and _is_self(target.value):
            nodes = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.Attribute))
            return self._first(
                node
                for node in nodes
                if node.attr == target.attr and isinstance(node.ctx, ast.Load) and _is_self(node.value)
            )
        return ""

    def _Attribute(self, parent: ast.Attribute, node: ast.AST) -> str:
        """A field or a method of the time, such as `hour` of a date or `item` of a tensor."""
        outer = self.source.parents[parent]
        return self.branch(outer if isinstance(outer, ast.Call) and outer.func is parent else parent)

    def _keyword(self, parent: ast.keyword, node: ast.AST) -> str:
        call = self.source.parents[parent]
        return self._passed(call, parent.arg) if isinstance(call, ast.Call) and parent.arg else ""

    def _Call(self, parent: ast.Call, node: ast.AST) -> str:
        return self._passed(parent, parent.args.index(node)) if node in parent.args else ""

    def _passed(self, call: ast.Call, argument: int | str) -> str:
        """The branch that an argument of a call decides."""
        name = last_name(call.func)
        if name in CONVERSIONS or name in _TENSORS:
            return self.branch(call)
        function = self._function(name)
        if is_printing(call) or function is None:
            return ""
        parameters = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(argument, int):
            argument += isinstance(call.func, ast.Attribute) and parameters[:1] == ["self"]
            argument = parameters[argument] if argument < len(parameters) else ""
        return self._first(self.source.loads(argument, function)) if argument else ""

    def _function(self, name: str) -> Function | None:
        """The only function or method of that name in the file."""
        functions = [node for node in self.source.parents if isinstance(node, Function) and node.name == name]
        return functions[0] if len(functions) == 1 else None

    def _Return(self, parent: ast.Return, node: ast.AST) -> str:
        function = self.source.scope(parent)
        if not isinstance(function, Function):
            return ""
        nodes = self.source.by_position.values()
        calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == function.name]
        return (self._first(calls) if self._function(function.name) else "") or self._in_caller(function)

    def _in_caller(self, function: Function) -> str:
        """The branch that is decided in another file, to which the function that reads the time returns it."""
        frame = self.frame.f_back if self.frame and self.frame.f_code.co_name == function.name else None
        current = current_expression(frame) if frame else None
        if frame is None or current is None or current[0] is self.source:
            return ""
        return _TimeUses(current[0], frame.f_code.co_filename, frame).branch(current[1])


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_harmless(statement: ast.stmt) -> bool:
    """Whether a statement only prints, logs, collects or computes what is on the host."""
    if isinstance(statement, ast.Pass | ast.Global | ast.Nonlocal):
        return True
    if isinstance(statement, ast.If | ast.For):
        header = statement.test if isinstance(statement, ast.If) else statement.iter
        return _has_harmless_calls([header]) and all(map(_is_harmless, (*statement.body, *statement.orelse)))
    if isinstance(statement, ast.Expr):
        call = statement.value
        if not isinstance(call, ast.Call):
            return isinstance(call, ast.Constant)
        is_known = is_printing(call) or last_name(call.func) in _LOGGERS | COLLECTING
        return is_known and _has_harmless_calls([*call.args, *call.keywords])
    is_assignment = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
    return is_assignment and _has_harmless_calls([statement])


def _has_harmless_calls(nodes: Sequence[ast.AST]) -> bool:
    calls = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return all(last_name(call.func) in _HARMLESS_CALLS for call in calls)
