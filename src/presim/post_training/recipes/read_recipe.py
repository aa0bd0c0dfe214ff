"""Read a recipe: a YAML file with the files that it inherits, or a launch script with ``key=value`` or ``--key value``.

Variables of a script and references of a YAML file are resolved where they are plain: ``${name}``,
``${name:-default}``, ``$((1024 * 2))``, ``${mul:${a}, ${b}}``. A setting that is not resolved counts as not given. What
a script sets under a condition counts where nothing has set it before.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.post_training.recipes.python_recipe import settings_of_python
from presim.system.files import FormatError, decode_yaml, read_text, shortened

_MOST_PARENTS = 8
_MOST_NESTED = 3
_MOST_QUOTED = 40  # lines of a quote
_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}  # fmt: skip
_SUM = "$(("
_UNRESOLVED = "$unresolved"  # a variable that no script sets
_NAME = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b\}?")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^{}]*))?\}|\$(\w+)")
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_PRODUCT = re.compile(r"\$\{mul: ?(\d+), ?(\d+)\}")
_OPENS, _CLOSES = (["if"], ["case"]), (["fi"], ["esac"])
_SEQUENCE = re.compile(r"\$\(seq (\d+) (\d+)(?: (\d+))?\)")
_ARRAY = re.compile(r"\$\{\w+\[[@*]\]\}|\$[@*]")  # arguments that a script has collected
_NOTHING = ("", "null", "None")
_TOP_LEVEL = ("model_engine",)  # settings without a group
_SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


def settings_of(path: str, overrides: Sequence[str]) -> tuple[dict[str, Any], frozenset[str]]:
    """The flat settings of a recipe, with overrides in Hydra's notation, and which are not of an inherited file.

    Raises:
        InputError: a file cannot be read, or an override is no ``key=value``.
    """
    file = Path(path)
    if file.suffix in (".yaml", ".yml"):
        settings, named = _of_yaml(file, 0)
    elif file.suffix == ".py":
        settings = settings_of_python(read_text(path, "name a recipe"), file.name)
        named = set(settings)
    else:
        settings = _of_script(read_text(file, "name a recipe"))
        named = set(settings)
    for override in overrides:
        match = _SETTING.fullmatch(override)
        if match is None:
            raise InputError(f"{shortened(override)!r} is no override; write it as KEY=VALUE")
        settings[match[1]] = match[2]
        named.add(match[1])
    return {
        name: None if value in _NOTHING else _referred(value, settings) for name, value in settings.items()
    }, frozenset(named)


def _of_yaml(file: Path, depth: int) -> tuple[dict[str, Any], set[str]]:
    """Settings of a file and of those that it inherits, and the names of its own."""
    try:
        content = decode_yaml(read_text(file, "name a recipe"))
    except FormatError as error:
        raise InputError(f"{file} is not valid YAML: {error}; correct it") from error
    if not isinstance(content, Mapping):
        raise InputError(f"{file} is no recipe: it has no keys; name another file")
    parent = content.get("defaults")
    if depth >= _MOST_PARENTS:
        raise InputError(f"{file} inherits more than {_MOST_PARENTS} files; leave some out")
    inherited = _of_yaml(file.parent / parent, depth + 1)[0] if isinstance(parent, str) else {}
    settings = _flat({key: value for key, value in content.items() if key != "defaults"})
    return {**inherited, **settings}, set(settings)


def _flat(content: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        settings |= _flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return settings


def _referred(value: Any, settings: Mapping[str, Any]) -> Any:
    """A value with plain references in place; None if one is not plain."""
    for _ in range(_MOST_PARENTS):
        if not isinstance(value, str):
            return value
        if "${" not in value:
            return None if _VARIABLE.search(value) else value
        value = _REFERENCE.sub(lambda match: str(settings.get(match[1], match[0])), value)
        value = _PRODUCT.sub(lambda match: str(int(match[1]) * int(match[2])), value)
    return None


def _of_script(text: str) -> dict[str, Any]:
    variables: dict[str, str] = {}
    settings: dict[str, Any] = {}
    conditions = 0
    for line in _commands(text):
        try:
            words = shlex.split(_with_variables(line, variables), comments=True)
        except ValueError:
            continue  # a quote that does not end: no setting
        conditions += (words[:1] in _OPENS) - (words[:1] in _CLOSES or words[-1:] in _CLOSES)
        if len(words) == 1 and (match := _SETTING.fullmatch(words[0])) and "." not in match[1]:
            variables = {match[1]: match[2], **variables} if conditions > 0 else {**variables, match[1]: match[2]}
            if not _is_key(match[1]):
                continue
        line_settings = _of_words(words)
        for before, word in zip(["", *words], words):
            if before == "-c" or "\n" in word:  # of bash -c
                line_settings |= _of_script(word)
        settings = {**line_settings, **settings} if conditions > 0 else {**settings, **line_settings}
    return settings


def _commands(text: str) -> Iterator[str]:
    """Lines of a script, joined where one ends with a backslash or within quotes, as JSON in an argument does."""
    lines = text.replace("\\\n", " ").splitlines()
    index = 0
    while index < len(lines):
        counts = range(1, min(_MOST_QUOTED, len(lines) - index) + 1)
        count = next((count for count in counts if _is_closed("\n".join(lines[index : index + count]))), 1)
        yield "\n".join(lines[index : index + count])
        index += count


def _is_closed(text: str) -> bool:
    """Whether all quotes end."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def _is_key(name: str) -> bool:
    """Whether a name is a setting's, and no variable's."""
    return "." in name or name in _TOP_LEVEL


def _of_words(words: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else "--"
        if word.startswith("--") and len(word) > len("--"):
            name, equals, value = word[2:].partition("=")
            is_switch = following.startswith("--") or _ARRAY.fullmatch(following) is not None
            settings[name] = value if equals else True if is_switch else _value_of(words, index + 1)
        elif (match := _SETTING.fullmatch(word)) and _is_key(match[1]):
            ends_array = match[2].endswith(")") and "(" not in match[2]
            settings[match[1]] = match[2].removesuffix(")") if ends_array else match[2]
        elif "one_step_off_policy" in word:
            settings["async_training.staleness_threshold"] = 1
        elif word.endswith("train_async.py"):  # slime's trainer that generates the next batch beside an update
            settings["train-async"] = True
    return settings


def _value_of(words: Sequence[str], first: int) -> Any:
    """The word of an option, or all its numbers if there are several."""
    end = first
    while end < len(words) and words[end].isdigit():
        end += 1
    return list(words[first:end]) if end - first > 1 else words[first]


def _numbers(match: re.Match[str]) -> str:
    """The numbers of ``seq FIRST LAST`` or ``seq FIRST STEP LAST``."""
    step = int(match[2]) if match[3] else 1
    return " ".join(map(str, range(int(match[1]), int(match[3] or match[2]) + 1, max(step, 1))))


def _with_variables(line: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return variables.get(name, match[2] if match[2] is not None else match[0])

    line = _SEQUENCE.sub(_numbers, _with_sums(line, variables))
    for _ in range(_MOST_NESTED):  # a default may be another variable
        line = _VARIABLE.sub(value, line)
    return line


def _with_sums(line: str, variables: Mapping[str, str]) -> str:
    """The line with each ``$((…))`` computed; names within need no dollar sign."""
    start = line.find(_SUM)
    if start < 0:
        return line
    end, depth = start + 1, 0
    while end < len(line):
        depth += {"(": 1, ")": -1}.get(line[end], 0)
        end += 1
        if not depth:
            break
    named = _NAME.sub(lambda name: variables.get(name[1], name[0]), line[start + len(_SUM) : end - 2])
    return line[:start] + _computed(named) + _with_sums(line[end:], variables)


def _computed(text: str) -> str:
    try:
        return str(_value(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return _UNRESOLVED


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return int(_OPERATORS[type(node.op)](_value(node.left), _value(node.right)))
    raise ValueError("no sum of whole numbers")
