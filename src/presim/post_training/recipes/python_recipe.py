"""Read a Python script that makes TRL's configuration: the arguments of its calls that are plain values."""

from __future__ import annotations

import ast
from typing import Any

from presim.errors import InputError
from presim.system.files import shortened

_CLASSES = ("GRPOConfig", "RLOOConfig")
_ADAPTERS, _TRAINERS = "LoraConfig", ("GRPOTrainer", "RLOOTrainer")


def settings_of_python(text: str, name: str) -> dict[str, Any]:
    """Settings by the names of TRL's fields; values that are computed count as not given.

    Raises:
        InputError: it is no Python, or makes no such configuration.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"{shortened(name)} is not valid Python: {error}; correct it") from error
    settings: dict[str, Any] = {}
    is_configured = False
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        plain = _plain(call)
        if function in _CLASSES:
            is_configured = True
            settings |= plain
        elif function == _ADAPTERS:
            settings |= {"use_peft": True, "lora_r": plain.get("r")}
        elif function in _TRAINERS and isinstance(plain.get("model"), str):
            settings["model_name_or_path"] = plain["model"]
    if not is_configured:
        raise InputError(
            f"{shortened(name)} makes no {' or '.join(_CLASSES)}; name a script that does, or a file with its fields"
        )
    return settings


def _plain(call: ast.Call) -> dict[str, Any]:
    """Arguments whose values stand in the call."""
    plain: dict[str, Any] = {}
    for keyword in call.keywords:
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError):
            continue
        if keyword.arg is not None:
            plain[keyword.arg] = value
    return plain
