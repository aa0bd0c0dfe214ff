"""The options of a verb as data, read from its own declarations: forms and Python calls have no second list of them."""

from __future__ import annotations

import difflib
import keyword
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import click
import msgspec

from presim.cli.main import cli
from presim.cli.numbers import Real, Whole
from presim.errors import InputError

Values: TypeAlias = Mapping[str, str | bool]  # of a form, by option: a word, several words, or whether a flag is given
_OUTPUTS = ("json_file", "quiet", "help")


class Declaration(msgspec.Struct, frozen=True):
    """An option or argument of a verb."""

    name: str  # key of its value
    flag: str  # as on the command line; empty: an argument
    opposite_flag: str  # of a pair such as --sp/--no-sp; empty: none
    type: Literal["number", "choice", "switch", "text"]
    help: str
    default: str  # in words; empty: as the help says
    choices: list[str]
    metavar: str
    is_required: bool
    is_multiple: bool  # its value is several words, as a shell splits them
    num_words: int  # that follow the flag each time


def command_of(verb: str) -> click.Command:
    """The verb's command; ``network show``: a command below it.

    Raises:
        InputError: there is no such verb.
    """
    name, *below = verb.split() or [verb]
    command = cli.get_command(click.Context(cli), name)
    for word in below:
        command = command.commands.get(word) if isinstance(command, click.Group) else None
    if command is None:
        verbs = cli.list_commands(click.Context(cli))
        similar_verbs = difflib.get_close_matches(verb, verbs, 2)
        hint = f"did you mean {' or '.join(similar_verbs)}?" if similar_verbs else f"use one of {', '.join(verbs)}"
        raise InputError(f"no verb {verb!r}; {hint}")
    return command


def declarations(verb: str) -> list[Declaration]:
    """What a verb takes, in the order of its help; without --json, --quiet and --help."""
    return [_declaration(parameter) for parameter in _parameters(verb)]


def words_of(verb: str, values: Values, more_options: Sequence[str] = ()) -> list[str]:
    """The words after ``presim VERB`` that give a verb these values and more options; empty values are left out."""
    options: list[str] = []
    arguments: list[str] = []
    for declared in declarations(verb):
        value = values.get(declared.name, "")
        if declared.type == "switch":
            options += [declared.flag] if value else []
        elif declared.opposite_flag:
            options += [str(value)] if value else []
        elif str(value).strip():
            parts = split(str(value)) if declared.is_multiple else [str(value).strip()]
            options += _options(declared, parts) if declared.flag else []
            arguments += [] if declared.flag else parts
    return in_order(verb, arguments, [*options, *more_options])


def in_order(verb: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """The words of a verb: arguments, then options; the other way round where an argument could be read as an option.

    What follows the script of `presim run` is the script's own.
    """
    if arguments and not command_of(verb).context_settings.get("allow_interspersed_args", True):
        return [*options, *(["--"] if arguments[0].startswith("-") else []), *arguments]
    if any(word.startswith("-") for word in arguments):
        return [*options, "--", *arguments]
    return [*arguments, *options]


def values_of(verb: str, words: list[str]) -> dict[str, str | bool]:
    """The values that words after ``presim VERB`` give: the reverse of `words_of`.

    Raises:
        InputError: the words are not those of the verb.
    """
    command = command_of(verb)
    context = _context(command, verb)
    try:
        parsed, _, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        raise InputError(f"presim {verb}: {error.format_message()}") from error
    values: dict[str, str | bool] = {}
    for parameter, declared in zip(_parameters(verb), declarations(verb)):
        value = parsed.get(declared.name)
        if not isinstance(value, str | bool | list | tuple):  # click has a mark of its own for "not given"
            continue
        if declared.type == "switch":
            values[declared.name] = True
        elif declared.opposite_flag:
            values[declared.name] = (
                declared.flag if value == getattr(parameter, "flag_value", True) else declared.opposite_flag
            )
        else:
            values[declared.name] = shlex.join(value) if isinstance(value, list | tuple) else str(value)
    return values


def errors_of(verb: str, values: Values) -> dict[str, str]:
    """By option, what the command line would say of its value; under an empty name, what it says of all together."""
    command = command_of(verb)
    try:
        words = words_of(verb, values)
    except InputError as error:  # an option of several words has another number of them
        return {option_of(verb, str(error), values): str(error)}
    errors: dict[str, str] = {}
    context = _context(command, verb)
    parsed, _, _ = command.make_parser(context).parse_args(list(words))
    for parameter in _parameters(verb):
        try:
            value, _ = parameter.consume_value(context, parsed)
            parameter.process_value(context, value)
        except click.MissingParameter:
            errors[str(parameter.name)] = f"needed: {_declaration(parameter).help or parameter.human_readable_name}"
        except click.BadParameter as error:
            errors[str(parameter.name)] = error.message
        except InputError as error:
            errors[str(parameter.name)] = str(error)
    return errors


def option_of(verb: str, sentence: str, values: Values) -> str:
    """The option that a sentence of the command line is about, for showing it beside its field; empty: not known.

    A sentence names the flag, or begins with the field of a plan (``tensor = 3 …``), or quotes the value or the
    argument that is missing.
    """
    fields = declarations(verb)
    named = [
        (match.start(), field.name) for field in fields if field.flag and (match := _mention(field.flag, sentence))
    ]
    if named:
        return min(named)[1]
    if match := re.match(r"(\w+) = ", sentence):
        return next((field.name for field in fields if field.name == match[1]), "")
    quoted = {field.name.upper(): field.name for field in fields if not field.flag}  # as click names an argument
    quoted |= {str(values[field.name]): field.name for field in fields if values.get(field.name)}
    words = [word for pair in re.findall(r"'([^']+)'|^(\S+)", sentence) for word in pair]
    return next((quoted[word] for word in words if word in quoted), "")


def _mention(flag: str, sentence: str) -> re.Match[str] | None:
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", sentence)


def split(text: str) -> list[str]:
    """The words of a value as a shell splits them; with an open quotation mark, by blanks alone."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def python_keyword(flag: str) -> str:
    """The keyword of `presim.ask` for a flag.

    >>> python_keyword("--gpus-per-node"), python_keyword("--pass")
    ('gpus_per_node', 'pass_')
    """
    word = flag.lstrip("-").replace("-", "_")
    return f"{word}_" if keyword.iskeyword(word) else word


def _context(command: click.Command, verb: str) -> click.Context:
    return click.Context(command, info_name=verb, **command.context_settings)


def _parameters(verb: str) -> list[click.Parameter]:
    return [parameter for parameter in command_of(verb).params if parameter.name not in _OUTPUTS]


def _declaration(parameter: click.Parameter) -> Declaration:
    option = parameter if isinstance(parameter, click.Option) else None
    flags = sorted(option.opts, key=len, reverse=True) if option else [""]
    opposites = option.secondary_opts if option else []
    is_switch = option is not None and option.is_flag and not opposites
    kind: Literal["number", "choice", "switch", "text"] = "text"
    choices: list[str] = []
    if is_switch:
        kind = "switch"
    elif opposites:
        kind, choices = "choice", [flags[0], opposites[0]]
    elif isinstance(parameter.type, click.Choice):
        kind, choices = "choice", [str(word) for word in parameter.type.choices]
    elif isinstance(parameter.type, Whole | Real):
        kind = "number"
    return Declaration(
        str(parameter.name),
        flags[0],
        opposites[0] if opposites else "",
        kind,
        (option.help or "") if option else "",
        "" if is_switch or opposites else _default(parameter),
        choices,
        str(parameter.metavar or ""),
        parameter.required,
        parameter.nargs != 1 or bool(option and parameter.multiple),
        parameter.nargs if option else 1,
    )


def _default(parameter: click.Parameter) -> str:
    value = parameter.get_default(click.Context(click.Command("default")), call=False)
    if value is None or isinstance(value, bool | list | tuple) or not isinstance(value, str | int | float):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def several_words(declared: Declaration, parts: Sequence[str]) -> list[str]:
    """The words of an option that takes several.

    Raises:
        InputError: there are more or fewer, so that the next option would be read as one of them.
    """
    if len(parts) != declared.num_words:
        raise InputError(f"{declared.flag} takes {declared.num_words} words, {declared.metavar}, not {len(parts)}")
    return [declared.flag, *parts]


def _options(declared: Declaration, parts: list[str]) -> list[str]:
    """One option for each part, or for all words of an option that takes several."""
    if declared.num_words > 1:
        return several_words(declared, parts)
    return [word for part in parts for word in _option(declared.flag, part)]


def _option(flag: str, word: str) -> Iterator[str]:
    if word.startswith("-"):
        yield f"{flag}={word}"
        return
    yield from (flag, word)
