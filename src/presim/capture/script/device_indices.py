"""Find lines that use the index of a device, an argument with the local rank, or the process's C environment.

They are found in the source of a file: PyTorch asks for the current device thousands of times in a step, and neither
devices nor C report who asks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from presim.capture.script.expressions import ScriptSource
from presim.capture.script.value_uses import is_confined_in

_DEVICE = re.compile(r"cuda:\d+")
_PROCESS = re.compile(r"^/proc/[^/\n]+/environ$")
_MODULES = ("os", "socket")  # their functions are watched
_C_FUNCTIONS = frozenset(("getenv", "secure_getenv", "gethostname"))  # of a library that ctypes has loaded
_FUNCTIONS = frozenset(("current_device", "current_device_index", "get_device"))  # of torch.cuda and others, of tensors
# What a file's text must have for any of these; reading a text takes a hundredth of parsing it.
_INDEX = re.compile(r"\.\s*(?:\\\s*)?index\b(?!\s*\()")  # not called
_WORDS = re.compile(rf"\b(?:{'|'.join(sorted(_FUNCTIONS | _C_FUNCTIONS))})\b|cuda:\d|/environ\b")


def may_use_index(text: str, arguments: Collection[str] = ()) -> bool:
    """Whether the text of a file may have any of the lines that `index_lines` finds."""
    if _WORDS.search(text) or any(name in text for name in arguments):
        return True
    return "dev" in text and bool(_INDEX.search(text))


def index_lines(source: ScriptSource, arguments: Collection[str] = ()) -> dict[int, str]:
    """Lines where more than the choice of a device or what is printed depends on its index, and what they read.

    ``arguments``: attributes that hold the local rank, because a launcher passes it as an option.
    """
    lines: dict[int, str] = {}
    for node, parent in source.parents.items():
        name = _read(node, parent, arguments)
        if name and not (isinstance(node, ast.expr) and is_confined_in(source, node)):
            lines[getattr(node, "lineno", 0)] = name
    return dict(sorted(lines.items()))


def _read(node: ast.AST, parent: ast.AST, arguments: Collection[str]) -> str:
    """What an expression reads; empty if it is no index."""
    is_called = isinstance(parent, ast.Call) and parent.func is node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FUNCTIONS:
        return node.func.attr
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and not is_called:
        if node.attr in _FUNCTIONS or node.attr in arguments:
            return node.attr
        return "device index" if node.attr == "index" and "dev" in ast.unparse(node.value) else ""
    if isinstance(node, ast.Attribute) and node.attr in _C_FUNCTIONS and ast.unparse(node.value) not in _MODULES:
        return "C environment"
    if isinstance(node, ast.Constant) and _PROCESS.search(str(node.value)):
        return "C environment"
    is_compared = isinstance(parent, ast.Compare | ast.MatchValue) and isinstance(node, ast.Constant)
    return "device index" if is_compared and _DEVICE.fullmatch(str(node.value)) else ""  # type: ignore[attr-defined]
