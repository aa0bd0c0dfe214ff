"""Follow a value through the source of the code that reads it, to see whether device work can depend on it.

A value is confined if it only chooses a device or names the rank to PyTorch, is printed or logged, or is not used at
all. It is followed through arithmetic, conversions, texts, tuples, variables, attributes of `self`, and functions of
the same file, and into the caller that it is returned to. Any other use, and code without source, is not confined: a
comparison that decides anything but what is printed, an index, a call of an unknown function.

A value that is not confined may still tell zero apart only: whether it is zero decides something, and no other use of
it, or of anything that is computed from it, does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from types import FrameType

from presim.capture.script.expressions import Function, ScriptSource, current_expression

Path = tuple[object, ...]  # where the value is within a tuple, list or dict: index or key, outermost first

_DEVICE_CALLS = frozenset(
    (
        *("set_device", "set_device_index", "device", "device_index", "to", "cuda", "init_process_group"),
        *("get_device_properties", "get_device_name", "get_device_capability", "mem_get_info", "synchronize"),
        *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_summary"),
        *("reset_peak_memory_stats", "current_stream", "memory_stats"),
        "DistributedSampler",  # a read of the rank by itself: `rank_sources`
    )
)
_DEVICE_KEYWORDS = frozenset(
    ("device", "devices", "device_id", "device_ids", "device_index", "output_device", "map_location")
)
CONVERSIONS = frozenset(
    ("int", "str", "float", "bool", "round", "abs", "min", "max", "sum", "tuple", "list", "format", "len")
)
_PRINTING = frozenset(("print", "rank_zero_info", "pprint", "set_postfix", "set_description", "warn"))
_LOGGING = frozenset(("debug", "info", "warning", "error", "critical", "exception", "log"))
PRINTED_CALLS = CONVERSIONS | {"time", "perf_counter", "strftime", "now", "join"}  # calls within what is printed
COLLECTING = frozenset(("append", "add", "extend", "appendleft", "update"))
_DEVICE_TEXT = re.compile(r"cuda:?$|cuda:(%[ds]|\{)")
_VARIABLES = frozenset(("CUDA_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"))


def is_confined(frame: FrameType) -> bool:
    """Whether the value that a frame's current expression yields only chooses a device, is printed, or is not used."""
    current = current_expression(frame)
    return current is not None and _Uses(current[0], frame).are_confined(current[1], ())


def tells_only_zero(frame: FrameType) -> bool:
    """Whether nothing depends on the value of a frame's current expression but on whether it is zero."""
    current = current_expression(frame)
    return current is not None and _Uses(current[0], frame, tells_zero=True).are_confined(current[1], ())


def is_confined_in(source: ScriptSource, expression: ast.expr) -> bool:
    """The same for an expression of a file that no other file imports."""
    return _Uses(source, None).are_confined(expression, ())


class _Uses:
    """The uses of one value within a file. Each expression that carries the value is visited once."""

    def __init__(self, source: ScriptSource, frame: FrameType | None, *, tells_zero: bool = False) -> None:
        """``tells_zero``: that the value is zero may decide anything."""
        self.tells_zero = tells_zero
        self.source = source
        self.frame = frame  # of the function that reads the value
        self.is_main = frame is None or frame.f_globals.get("__name__") == "__main__"  # no other file imports its names
        self._visited: set[tuple[ast.AST, Path]] = set()

    def are_confined(self, node: ast.AST, path: Path) -> bool:
        """Whether all uses of the value of an expression are; ``path``: where the value is within it."""
        if (node, path) in self._visited:
            return True
        self._visited.add((node, path))
        parent = self.source.parents[node]
        handle = getattr(self, f"_{type(parent).__name__}", None)
        return handle is not None and bool(handle(parent, node, path))

    def _all(self, nodes: Iterable[ast.AST], path: Path) -> bool:
        return all(self.are_confined(node, path) for node in nodes)

    def _derived(self) -> _Uses:
        """Uses of something that is computed from the value: that it is zero says nothing about the value."""
        return _Uses(self.source, self.frame) if self.tells_zero else self

    # One method for each kind of parent node.

    def _Expr(self, parent: ast.Expr, node: ast.AST, path: Path) -> bool:
        return True

    def _passed_on(self, parent: ast.AST, node: ast.AST, path: Path) -> bool:
        return self.are_confined(parent, path)

    _FormattedValue = _Starred = _passed_on

    def _UnaryOp(self, parent: ast.UnaryOp, node: ast.AST, path: Path) -> bool:
        is_truth = isinstance(parent.op, ast.Not) and not path
        return (self.tells_zero and is_truth) or self._derived().are_confined(parent, path)

    def _BoolOp(self, parent: ast.BoolOp, node: ast.AST, path: Path) -> bool:
        later = parent.values[_index(parent.values, node) + 1 :]  # evaluated only for some values of this one
        decides = any(isinstance(inner, ast.Call) for value in later for inner in ast.walk(value))
        return not decides and self._derived().are_confined(parent, path)

    def _BinOp(self, parent: ast.BinOp, node: ast.AST, path: Path) -> bool:
        other = parent.left if node is parent.right else parent.right
        return _is_device_text(other) or self._derived().are_confined(parent, ())

    def _JoinedStr(self, parent: ast.JoinedStr, node: ast.AST, path: Path) -> bool:
        before = parent.values[parent.values.index(node) - 1] if node in parent.values[1:] else None
        return _is_device_text(before) or self._derived().are_confined(parent, ())

    def _IfExp(self, parent: ast.IfExp, node: ast.AST, path: Path) -> bool:
        if node is parent.test:
            return self.tells_zero and not path
        return self._derived().are_confined(parent, path)

    def _Compare(self, parent: ast.Compare, node: ast.AST, path: Path) -> bool:
        if self.tells_zero and not path and _is_with_zero(parent, node):
            return True
        return _is_same_for_all(parent) or self._derived().are_confined(parent, ())

    def _If(self, parent: ast.If, node: ast.AST, path: Path) -> bool:
        if self.tells_zero and node is parent.test and not path:
            return True
        return node is parent.test and all(map(_only_prints, (*parent.body, *parent.orelse)))

    def _Tuple(self, parent: ast.Tuple | ast.List, node: ast.AST, path: Path) -> bool:
        return self.are_confined(parent, (_index(parent.elts, node), *path))

    _List = _Tuple

    def _Dict(self, parent: ast.Dict, node: ast.AST, path: Path) -> bool:
        if node not in parent.values:
            return False
        key = parent.keys[parent.values.index(node)]
        return isinstance(key, ast.Constant) and self.are_confined(parent, (key.value, *path))

    def _Subscript(self, parent: ast.Subscript, node: ast.AST, path: Path) -> bool:
        if node is not parent.value:
            return False
        if not path:
            return self.are_confined(parent, ())  # an item of a list that the value was appended to
        if not isinstance(parent.slice, ast.Constant):
            return False
        return parent.slice.value != path[0] or self.are_confined(parent, path[1:])

    def _keyword(self, parent: ast.keyword, node: ast.AST, path: Path) -> bool:
        if parent.arg in _DEVICE_KEYWORDS:
            return True
        call = self.source.parents[parent]
        return parent.arg is not None and isinstance(call, ast.Call) and self._passed(call, parent.arg, path)

    def _Call(self, parent: ast.Call, node: ast.AST, path: Path) -> bool:
        if node not in parent.args or any(isinstance(argument, ast.Starred) for argument in parent.args):
            return False
        return self._passed(parent, parent.args.index(node), path)

    def _passed(self, call: ast.Call, argument: int | str, path: Path) -> bool:
        """Whether a function confines the uses of a value that is passed to it, by position or keyword."""
        name = last_name(call.func)
        if name in _DEVICE_CALLS or is_printing(call) or _sets_variable(call):
            return True
        if isinstance(call.func, ast.Name):
            if name in CONVERSIONS:
                uses = self if name == "int" else self._derived()
                return uses.are_confined(call, ())
            function = self.source.function(name)
            return function is not None and self._parameter(function, argument, path)
        if not isinstance(call.func, ast.Attribute):
            return False
        receiver = call.func.value
        if name == "format" and isinstance(receiver, ast.Constant):
            return _is_device_text(receiver) or self._derived().are_confined(call, ())
        return name in COLLECTING and isinstance(receiver, ast.Name) and self._derived()._variable(receiver, ())

    def _parameter(self, function: Function, argument: int | str, path: Path) -> bool:
        parameters = [*function.args.posonlyargs, *function.args.args]
        names = [parameter.arg for parameter in (*parameters, *function.args.kwonlyargs)]
        if isinstance(argument, int):
            if argument >= len(parameters):
                return False
            argument = parameters[argument].arg
        return argument in names and self._all(self.source.loads(argument, function), path)

    def _Return(self, parent: ast.Return, node: ast.AST, path: Path) -> bool:
        function = self.source.scope(parent)
        if not isinstance(function, Function):
            return False
        calls = self.source.calls(function.name) if function in self.source.tree.body else []
        caller = self._caller(function)
        if caller is None:
            return self.is_main and bool(calls) and self._all(calls, path)
        source, expression, frame = caller
        return self._all(calls, path) and _Uses(source, frame, tells_zero=self.tells_zero).are_confined(
            expression, path
        )

    def _caller(self, function: Function) -> tuple[ScriptSource, ast.expr, FrameType] | None:
        """The call, in another file, of the function that reads the value."""
        frame = self.frame.f_back if self.frame and self.frame.f_code.co_name == function.name else None
        current = current_expression(frame) if frame else None
        if frame is None or current is None or current[0] is self.source:
            return None
        return *current, frame

    def _Assign(self, parent: ast.Assign, node: ast.AST, path: Path) -> bool:
        return all(self._target(target, path) for target in parent.targets)

    def _AnnAssign(self, parent: ast.AnnAssign, node: ast.AST, path: Path) -> bool:
        return self._target(parent.target, path)

    def _AugAssign(self, parent: ast.AugAssign, node: ast.AST, path: Path) -> bool:
        return self._derived()._target(parent.target, ())

    def _NamedExpr(self, parent: ast.NamedExpr, node: ast.AST, path: Path) -> bool:
        return self._target(parent.target, path) and self.are_confined(parent, path)

    def _target(self, target: ast.expr, path: Path) -> bool:
        if isinstance(target, ast.Name):
            return self._variable(target, path)
        if isinstance(target, ast.Tuple | ast.List):
            if not path or not isinstance(path[0], int) or path[0] >= len(target.elts):
                return False
            return not any(isinstance(element, ast.Starred) for element in target.elts) and self._target(
                target.elts[path[0]], path[1:]
            )
        if isinstance(target, ast.Subscript):
            return _is_variable(target)
        return isinstance(target, ast.Attribute) and self._attribute(target, path)

    def _variable(self, name: ast.Name, path: Path) -> bool:
        scope = self.source.variable_scope(name)
        if isinstance(scope, ast.ClassDef) or (isinstance(scope, ast.Module) and not self.is_main):
            return False
        loads = self.source.loads(name.id, scope)
        return self._all((node for node in loads if not self._is_collected_into(node)), path)

    def _is_collected_into(self, name: ast.Name) -> bool:
        parent = self.source.parents[name]
        return isinstance(parent, ast.Attribute) and parent.attr in COLLECTING

    def _attribute(self, target: ast.Attribute, path: Path) -> bool:
        """Whether all reads of an attribute of `self` are confined, in a file that no other imports."""
        if not self.is_main or not isinstance(target.value, ast.Name) or target.value.id != "self":
            return False
        nodes = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.Attribute))
        return self._all((node for node in nodes if node.attr == target.attr and isinstance(node.ctx, ast.Load)), path)


def _index(nodes: Sequence[ast.AST], node: ast.AST) -> int:
    return nodes.index(node)


def last_name(function: ast.expr) -> str:
    """The name of a function or method by which it is called; empty without one."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_device_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_DEVICE_TEXT.search(node.value))


def _is_same_for_all(compare: ast.Compare) -> bool:
    """Whether a comparison has the same outcome for every rank: with None, or with a number below zero."""
    return all(_is_none_or_negative(node) for node in compare.comparators)


def _is_with_zero(compare: ast.Compare, node: ast.AST) -> bool:
    """Whether a comparison says only whether an operand is zero, as a number or as the text of a variable."""
    if len(compare.ops) != 1 or not isinstance(compare.ops[0], ast.Eq | ast.NotEq):
        return False
    other = compare.comparators[0] if node is compare.left else compare.left
    return isinstance(other, ast.Constant) and other.value in (0, "0") and not isinstance(other.value, bool)


def _is_none_or_negative(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def is_printing(call: ast.Call) -> bool:
    """Whether a call prints or logs its arguments."""
    name = last_name(call.func)
    if name in _PRINTING:
        return True
    receiver = ast.unparse(call.func.value).lower() if isinstance(call.func, ast.Attribute) else ""
    return name in _LOGGING and "log" in receiver


def _only_prints(statement: ast.stmt) -> bool:
    """Whether a statement only prints what is on the host."""
    if isinstance(statement, ast.Pass):
        return True
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    inner: Sequence[ast.AST] = [node for node in ast.walk(statement.value) if node is not statement.value]
    calls = [node for node in inner if isinstance(node, ast.Call)]
    return is_printing(statement.value) and all(last_name(call.func) in PRINTED_CALLS for call in calls)


def _is_variable(target: ast.Subscript) -> bool:
    """Whether an assignment sets a variable that chooses a device or is watched itself."""
    is_environment = ast.unparse(target.value).endswith("environ")
    return is_environment and isinstance(target.slice, ast.Constant) and target.slice.value in _VARIABLES


def _sets_variable(call: ast.Call) -> bool:
    if last_name(call.func) != "setdefault" or not ast.unparse(call.func).endswith("environ.setdefault"):
        return False
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value in _VARIABLES
