"""Writes what the options of the command line and the results say: pages of the reference, and types for Python.

Run it after changing an option of the command line or a field of the result; a test holds that they are up to date.
"""

from __future__ import annotations

import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import click
import msgspec

from presim import result as results
from presim.cli.declared import command_of
from presim.cli.main import cli
from presim.cli.numbers import LengthOrAuto, Whole
from presim.cli.verb import show_all
from presim.cli.verb_keywords import Keyword, keywords_of
from presim.errors import MEANINGS
from presim.post_training.recipes.frameworks import FRAMEWORKS
from presim.report import json
from presim.result.deployments import DeployResult
from presim.result.serving import ServingResult

DOCS = Path(__file__).parent
KEYWORDS = DOCS.parent / "src" / "presim" / "cli" / "keyword_types.py"
# Functions of `presim.cli.api` that take the options of a command, with the command.
_COMMANDS = {
    "Compose": "compose",
    "Serve": "serve",
    "Deploy": "deploy",
    "Explain": "explain",
    "Training": "training",
    "Gate": "gate",
    "Import": "import",
    "Network": "network show",
    "Validate": "validate",
}
_NOTICE = "<!-- Written by docs/generate.py; change the code instead. -->\n\n"


def cli_reference() -> str:
    """``docs/reference/cli.md``: the help of every verb."""
    context = _context(cli, "presim", None)
    parts = ["# Command line\n", f"```text\n{cli.get_help(context)}\n```\n"]
    for verb in cli.list_commands(context):
        command = cli.get_command(context, verb)
        assert command is not None
        parts += [f"## presim {verb}\n", *(f"```text\n{text}\n```\n" for text in _help(command, verb, context))]
    rows = "\n".join(f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items())
    parts.append(f"## Exit codes\n\n| code | meaning |\n|---|---|\n{rows}\n")
    return _NOTICE + "\n".join(parts)


def _help(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = _context(command, name, parent)
    show_all(context)
    yield command.get_help(context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _help(found, child, context)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    command._help_option = None  # click keeps the option of the first context, which a test may have made otherwise
    settings: dict[str, Any] = {**command.context_settings, "terminal_width": 100, "max_content_width": 100}
    return click.Context(command, info_name=name, parent=parent, **settings)


def result_reference() -> str:
    """``docs/reference/result.md``: every field of the result."""
    parts = [
        "# The result\n",
        f"Every verb that predicts a job answers with one `Result`, version {results.SCHEMA_VERSION} of its schema: "
        "`presim … --json FILE` writes it, `presim.simulate(…)` returns it. It is written, too, when the script raised "
        "or ran out of memory; `exit` and `error` say so. `presim serve` answers with a "
        "[ServingResult](#servingresult), `presim deploy` with a [DeployResult](#deployresult). "
        "Times are seconds unless a name says otherwise, sizes bytes, shares fractions of 1; "
        "`null` means not known, never zero. The JSON Schema of all three is "
        "[result.schema.json](result.schema.json).\n",
    ]
    structs: list[type[msgspec.Struct]] = []
    for variant in (results.Result, ServingResult, DeployResult):
        _structs(variant, structs)
    for struct in structs:
        parts.append(f"## {struct.__name__}\n")
        parts.append(f"{_paragraphs(struct.__doc__ or '')}\n")
        parts.append("| field | type | meaning |\n|---|---|---|")
        parts += [f"| `{name}` | {kind} | {text} |" for name, kind, text in _fields(struct)]
        parts.append("")
    return _NOTICE + "\n".join(parts)


def _structs(struct: type[msgspec.Struct], seen: list[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    """The struct and those its fields are made of, each once, in order of first use."""
    if struct not in seen:
        seen.append(struct)
        for field in msgspec.structs.fields(struct):
            for part in _parts(field.type):
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    _structs(part, seen)
    return seen


def _parts(kind: Any) -> Iterator[Any]:
    yield kind
    for argument in get_args(kind):
        yield from _parts(argument)


def _fields(struct: type[msgspec.Struct]) -> Iterator[tuple[str, str, str]]:
    hints = typing.get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        description = next((m.description for m in get_args(hint)[1:] if isinstance(m, msgspec.Meta)), None)
        if get_origin(hint) is not Annotated or not description:
            raise SystemExit(f"{struct.__name__}.{field.name} says nothing: annotate it with doc(…)")
        yield field.name, _type_name(get_args(hint)[0]), description.replace("|", "\\|")


def _type_name(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if get_origin(kind) is list:
        return f"list of {_type_name(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return f"map of {_type_name(get_args(kind)[1])}"
    if get_origin(kind) is tuple:
        return f"[{', '.join(map(_type_name, get_args(kind)))}]"
    if type(None) in get_args(kind):
        return " or ".join("null" if part is type(None) else _type_name(part) for part in get_args(kind))
    if get_args(kind):
        return " or ".join(dict.fromkeys(map(_type_name, get_args(kind))))
    return {str: "string", float: "number", int: "integer", bool: "boolean", Any: "any"}[kind]


def _paragraphs(docstring: str) -> str:
    return "\n".join(line.strip() for line in docstring.strip().splitlines())


def recipe_reference() -> str:
    """``docs/reference/rl-recipes.md``: what each key of a framework's recipes means."""
    parts = [
        "# Keys of recipes of reinforcement learning\n",
        "`presim rl --from FRAMEWORK FILE` takes these keys ([guide](../guide/rl-recipes.md)). A default is the "
        "framework's own, and counts where a recipe says nothing. `*` stands for any letters.\n",
    ]
    for name, framework in FRAMEWORKS.items():
        rows = [
            f"| `{key}` | {_of_job(known.field)} | {'' if known.default is None else known.default} |"
            for key, known in framework.keys.items()
        ]
        for meaning, keys in (
            ("named: it changes time or memory and is not simulated", framework.unsimulated),
            ("some values are refused", [key for key in framework.refused if key not in framework.keys]),
            ("changes no time", framework.no_effect),
        ):
            rows += [f"| `{key}` | {meaning} | |" for key in dict.fromkeys(keys)]
        parts += [f"## {name}\n", "| key | sets | default |\n|---|---|---|", *rows, ""]
    return _NOTICE + "\n".join(parts)


def _of_job(field: str) -> str:
    """A field of a request, or a fact about it, in words."""
    owner, dot, name = field.rpartition(".")
    return f"{owner}: {name.replace('_', ' ')}" if dot else name.replace("_", " ")


def keyword_types() -> str:
    """``presim/cli/keyword_types.py``: the keywords of `presim.compose` and others, with their types."""
    parts = [
        '"""Keywords of the verbs in Python, with their types. Written by docs/generate.py from the command line."""',
        "from __future__ import annotations\n",
        "import os",
        "from collections.abc import Sequence",
        "from typing import Literal, TypeAlias, TypedDict\n",
        "File: TypeAlias = str | os.PathLike[str]",
        "Word: TypeAlias = str | float  # as on the command line; a number stands for itself",
    ]
    for name, command in _COMMANDS.items():
        keywords = keywords_of(command)
        lines = [f"    {word}: {_keyword_type(command, keyword)} | None" for word, keyword in keywords.items()]
        docstring = f'    """Options of ``presim {command}``, which ``presim {command} --help-all`` explains."""\n'
        parts.append("\n".join([f"class {name}Keywords(TypedDict, total=False):", docstring, *lines]))
    formatter = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(KEYWORDS), "-"]
    source = "\n".join(parts)
    return subprocess.run(formatter, input=source, capture_output=True, text=True, check=True).stdout


def _keyword_type(command: str, keyword: Keyword) -> str:
    option = keyword.option
    if option.type == "switch" or option.opposite_flag:
        return "bool"
    parameter = next(parameter for parameter in command_of(command).params if parameter.name == option.name)
    if option.type == "choice":
        words = ", ".join(f'"{word}"' for word in option.choices)
        single = f"Literal[{words}]"
    elif option.type == "number":
        single = "int" if isinstance(parameter.type, Whole) else "float"
    else:
        is_file = isinstance(parameter.type, click.Path) or option.metavar in ("DIR", "FILE")
        single = "File" if is_file else "Word"
    if isinstance(parameter.type, LengthOrAuto):
        single = 'int | Literal["auto"]'
    if option.num_words > 1:
        return f"Sequence[{single}]"
    return f"{single} | Sequence[{single}]" if option.is_multiple else single


def generated() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    return {
        DOCS / "reference" / "cli.md": cli_reference(),
        DOCS / "reference" / "result.md": result_reference(),
        DOCS / "reference" / "result.schema.json": json.json_schema().decode(),
        DOCS / "reference" / "rl-recipes.md": recipe_reference(),
        KEYWORDS: keyword_types(),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
