"""Find the expression that a running frame evaluates, in the source of its file."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import linecache
from types import FrameType

Position = tuple[int | None, int | None, int | None, int | None]  # line, last line, column, last column, as in `ast`
Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module, *_COMPREHENSIONS)


@dataclasses.dataclass(frozen=True)
class ScriptSource:
    """The syntax tree of a file."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    by_position: dict[Position, ast.expr]  # calls, subscripts, attributes and displays

    def scope(self, node: ast.AST) -> ast.AST:
        """The innermost function, lambda, comprehension, class or module around a node."""
        node = self.parents[node]
        while not isinstance(node, _SCOPES):
            node = self.parents[node]
        return node

    def loads(self, name: str, scope: ast.AST) -> list[ast.Name]:
        """Where the variable of that name in a scope is read, nested functions included.

        Functions that bind the name themselves have a variable of their own.
        """
        names = (node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name)
        return [node for node in names if isinstance(node.ctx, ast.Load) and self.variable_scope(node) is scope]

    def variable_scope(self, name: ast.Name) -> ast.AST:
        """The scope of the variable that a name stands for."""
        scope = self.scope(name)
        if isinstance(scope, ast.ClassDef) and name.id in bound_names(scope):
            return scope
        while not isinstance(scope, ast.Module) and (
            isinstance(scope, ast.ClassDef) or name.id not in bound_names(scope)
        ):
            scope = self.scope(scope)  # a class's variables are not visible in its methods
        return scope

    def function(self, name: str) -> Function | None:
        """The only function of that name at the top level of the file; None if there is none or more than one."""
        functions = [node for node in self.tree.body if isinstance(node, Function) and node.name == name]
        return functions[0] if len(functions) == 1 else None

    def calls(self, name: str) -> list[ast.Call]:
        """The calls of a function by its bare name."""
        nodes = (node for node in self.by_position.values() if isinstance(node, ast.Call))
        return [node for node in nodes if isinstance(node.func, ast.Name) and node.func.id == name]


@functools.cache
def bound_names(scope: ast.AST) -> frozenset[str]:
    """The local variables of a function, lambda, comprehension or class."""
    names: set[str] = set()
    arguments = getattr(scope, "args", None)
    if isinstance(arguments, ast.arguments):
        names |= {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}
    pending, outer = list(ast.iter_child_nodes(scope)), set[str]()
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            outer |= set(node.names)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)
    return frozenset(names - outer)


@functools.lru_cache(maxsize=64)
def source_of(file: str) -> ScriptSource | None:
    """The source of a file; None if it cannot be read or parsed."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    kinds = (ast.Call, ast.Subscript, ast.Attribute, ast.Dict, ast.BinOp)
    nodes = (node for node in parents if isinstance(node, kinds))
    return ScriptSource(tree, parents, {_position(node): node for node in nodes})


def current_expression(frame: FrameType) -> tuple[ScriptSource, ast.expr] | None:
    """The expression whose value a frame waits for, with its file; None without the source."""
    source = source_of(frame.f_code.co_filename)
    position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    expression = source.by_position.get(position) if source and position else None
    return (source, expression) if source and expression is not None else None


def _position(node: ast.expr) -> Position:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
