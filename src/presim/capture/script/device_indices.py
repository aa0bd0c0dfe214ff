"""Find the lines of a file that use the index of a device, which PyTorch's classes do not report."""

from __future__ import annotations

import ast
import re

from presim.capture.script.expressions import Source
from presim.capture.script.value_uses import is_confined_in

_DEVICE = re.compile(r"cuda:\d+")


def device_index_lines(source: Source) -> list[int]:
    """The lines, ascending, where more than the choice of a device or what is printed depends on an index.

    They read `device.index`, or compare a device with ``"cuda:1"``.
    """
    lines = set()
    for node, parent in source.parents.items():
        if isinstance(node, ast.Attribute) and node.attr == "index" and isinstance(node.ctx, ast.Load):
            is_method = isinstance(parent, ast.Call) and parent.func is node  # of a list
            if not is_method and "dev" in ast.unparse(node.value) and not is_confined_in(source, node):
                lines.add(node.lineno)
        if isinstance(parent, ast.Compare | ast.MatchValue) and isinstance(node, ast.Constant):
            lines |= {node.lineno} if _DEVICE.fullmatch(str(node.value)) else set()
    return sorted(lines)
