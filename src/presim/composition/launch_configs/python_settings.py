"""torchtitan's configurations in Python as settings, read without being run.

Assignments, calls of the file's own functions and nested calls of classes are followed; anything else is refused.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from presim.errors import InputError

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip
_CONFIGS = ("Trainer.Config", "JobConfig")
_DEEPEST = 20  # calls within calls
_NO_VALUE = object()
_STEP_SECTIONS = ("training", "parallelism", "compile", "activation_checkpoint")


class _Call(dict[str, Any]):
    """The named arguments of a call; ``name``: what is called; ``items``: its other arguments."""

    def __init__(self, name: str, items: list[Any], fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.name, self.items_given = name, items


class ConfigReader:
    """The functions and values of a file."""

    def __init__(self, text: str, origin: str) -> None:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise InputError(f"{origin} is not valid Python: {error}; correct it") from error
        self.origin = origin
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.constants: dict[str, Any] = {}
        self.depth = 0
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = self._value(node.value, self.constants)

    def configurations(self) -> list[str]:
        """Names of what configures a trainer."""
        constants = [name for name, value in self.constants.items() if _is_config(value)]
        functions = [name for name, node in self.functions.items() if _is_config(self._returned(node))]
        return [*constants, *functions]

    def configuration(self, name: str | None) -> _Call:
        """The named configuration, or the only one.

        Raises:
            InputError: there is none of that name, or several.
        """
        names = self.configurations()
        if not names:
            raise InputError(f"{self.origin} has no configuration of torchtitan's trainer; run it under `presim run`")
        if name is None and len(names) > 1:
            raise InputError(
                f"{self.origin} has {len(names)} configurations; name one, as --from '{self.origin} {names[0]}'"
            )
        name = name or names[0]
        if name not in names:
            raise InputError(f"{self.origin} has no configuration {name}; it has {', '.join(names[:20])}")
        value = self.constants.get(name)
        value = value if value is not None else self._returned(self.functions[name])
        assert isinstance(value, _Call), "chosen by `_is_config`"
        return value

    def _returned(self, node: ast.FunctionDef) -> Any:  # whatever a function returns
        """What a function without arguments returns; `_NO_VALUE`: that is not known."""
        self.depth += 1
        try:
            if self.depth > _DEEPEST:
                return _NO_VALUE
            return self._run(node.body, dict(self.constants))
        finally:
            self.depth -= 1

    def _run(self, body: list[ast.stmt], names: dict[str, Any]) -> Any:
        for statement in body:
            if isinstance(statement, ast.Return):
                return self._value(statement.value, names) if statement.value else _NO_VALUE
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], self._value(statement.value, names), names)
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                self._assign(statement.target, self._value(statement.value, names), names)
            elif not isinstance(statement, ast.Assert | ast.Pass | ast.Import | ast.ImportFrom) and not (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ):
                return _NO_VALUE  # only running it would tell
        return _NO_VALUE

    def _assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self._value(target.value, names)
            if isinstance(owner, dict):
                owner[target.attr] = value

    def _value(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return names.get(node.id, _NO_VALUE)
        if isinstance(node, ast.List | ast.Tuple):
            return [self._value(item, names) for item in node.elts]
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value, names)
            return owner.setdefault(node.attr, _Call(node.attr, [], {})) if isinstance(owner, _Call) else _NO_VALUE
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            sides = (self._value(node.left, names), self._value(node.right, names))
            return (
                _OPERATORS[type(node.op)](*sides) if all(isinstance(side, int | float) for side in sides) else _NO_VALUE
            )
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, names)
            return -value if isinstance(value, int | float) else _NO_VALUE
        return self._called(node, names) if isinstance(node, ast.Call) else _NO_VALUE

    def _called(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        name = ast.unparse(node.func)
        if name in self.functions and not node.args and not node.keywords:
            return self._returned(self.functions[name])
        if name == "float" and node.args and isinstance(node.args[0], ast.Constant):
            return math.inf if node.args[0].value == "inf" else _NO_VALUE
        fields = {word.arg: self._value(word.value, names) for word in node.keywords if word.arg}
        return _Call(name, [self._value(item, names) for item in node.args], fields)


def _is_config(value: object) -> bool:
    return isinstance(value, _Call) and value.name.endswith(_CONFIGS)


def python_settings(text: str, path: Path, name: str | None) -> dict[str, Any]:
    """The sections of a configuration in Python, as those of torchtitan's TOML files.

    Raises:
        InputError: it cannot be read without running it.
    """
    config = ConfigReader(text, path.name).configuration(name)
    sections = {
        section: _plain(section, value, path.name) for section, value in config.items() if isinstance(value, _Call)
    }
    spec = config.get("model_spec")
    if isinstance(spec, _Call) and spec.items_given:
        sections["model"] = {"name": path.resolve().parent.name, **_model_settings(spec, path.name)}
        sections.pop("model_spec", None)
    checkpointing = config.get("activation_checkpoint", _NO_VALUE)
    if isinstance(checkpointing, _Call) and checkpointing.name.endswith(("AC.Config", "ACConfig")):
        kind = "full" if "Full" in checkpointing.name else "selective"
        sections["activation_checkpoint"] = {"mode": kind, "selective_ac_option": "op"}
    elif checkpointing is None or (checkpointing is _NO_VALUE and "model_spec" in config):
        sections["activation_checkpoint"] = {"mode": "none"}  # the trainer's default since its files are Python
    optimizer = config.get("optimizer")
    if isinstance(optimizer, _Call) and "name" not in optimizer:
        sections["optimizer"]["name"] = "AdamW" if "adamw" in optimizer.name.lower() else optimizer.name
    loss = config.get("loss")
    sections["loss"] = {"is_chunked": isinstance(loss, _Call) and "Chunked" in loss.name}
    training = sections.setdefault("training", {})
    if "model_spec" in config:  # torchtitan's trainer replays CUDA graphs since its files are Python
        training["replays_graphs"] = not training.pop("disable_cuda_graphs", False)
    _new_sizes(training, path.name)
    return sections


def _plain(section: str, values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The values of a section.

    Raises:
        InputError: one that changes the step is known only by running the file.
    """
    for name, value in values.items():
        if section in _STEP_SECTIONS and (value is _NO_VALUE or isinstance(value, _Call)):
            raise InputError(f"{origin} computes {section}.{name} by code that is not run; write its value instead")
    return {name: value for name, value in values.items() if value is not _NO_VALUE and not isinstance(value, _Call)}


def _model_settings(spec: _Call, origin: str) -> dict[str, Any]:
    """The flavor, the names of its converters, as older files have them, and what else the model is built with.

    Raises:
        InputError: converters of some layers only, or known only by running the file.
    """
    flavor, converters = spec.items_given[0], spec.get("converters", [])
    calls = (
        [converter for converter in converters if isinstance(converter, _Call)] if isinstance(converters, list) else []
    )
    if flavor is _NO_VALUE or not isinstance(converters, list) or len(calls) < len(converters):
        raise InputError(
            f"{origin} computes its model by code that is not run; write its flavor and converters instead"
        )
    if any(call.get("fqns", ["layers"]) != ["layers"] for call in calls):
        raise InputError(
            f"{origin} converts some layers only, which is not composed; run torchtitan under `presim run`"
        )
    names = [call.name.partition("LinearConverter")[0].lower() for call in calls]
    recipes = [str(call["recipe_name"]) for call in calls if "recipe_name" in call]
    settings = {"flavor": flavor, "converters": names, "recipe_name": (recipes or ["rowwise"])[0]}
    return settings | {name: value for name, value in spec.items() if name != "converters" and value is not _NO_VALUE}


def _new_sizes(training: dict[str, Any], origin: str) -> None:
    """The tokens of a micro-batch as samples of the longest length.

    Raises:
        InputError: they do not divide.
    """
    tokens, length = (
        training.pop("num_tokens_per_microbatch_per_dp_rank", None),
        training.pop("max_context_length", None),
    )
    if tokens is None or length is None:
        return
    if tokens % length:
        raise InputError(
            f"{origin} packs {tokens:,} tokens, no multiple of its length of {length:,}; give --seq and --mbs"
        )
    training |= {"seq_len": length, "local_batch_size": tokens // length}
