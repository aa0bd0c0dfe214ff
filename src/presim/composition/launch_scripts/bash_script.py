"""Follow a bash script to the command that it launches, without running anything.

Assignments, arrays, ``if``, ``case``, ``for``, ``while``, functions, ``eval``, sourced files and here-documents are
followed. A condition that asks for what only running would tell (a file, a program's output) counts as false, and is
named.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from presim.composition.launch_scripts.bash_compounds import ENDS, brace_end, branches_of, end_of, function_name
from presim.composition.launch_scripts.bash_tokens import Token, tokens_of
from presim.composition.launch_scripts.bash_values import MARK, Variables, without_unset
from presim.errors import InputError
from presim.system.files import read_text

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARES = ("export", "local", "readonly", "declare", "typeset")
_SHELLS = ("bash", "sh", "sbatch")
_LAUNCHERS = ("accelerate", "deepspeed", "torchrun", "axolotl", "llamafactory-cli", "trl")
_WRAPPERS = ("uv", "srun", "nohup", "exec", "time", "env", "poetry", "mpirun", "numactl")  # before a launcher
_MOST_TURNS = 1000
_MOST_CHARACTERS, _MOST_WORDS = 1_000_000, 100_000  # of a variable
_COMPARISONS = {"-eq": "==", "-ne": "!=", "-gt": ">", "-lt": "<", "-ge": ">=", "-le": "<="}


class _Stop(Exception):
    """The script has launched, or ends."""


class Script:
    """What a followed script launches. ``launch``: its words; ``undecided``: conditions that counted as false."""

    def __init__(self, settings: Mapping[str, str], words: Sequence[str], folder: Path) -> None:
        self.variables = Variables({name: [value] for name, value in settings.items()}, words)
        self.functions: dict[str, list[Token]] = {}
        self.folder = folder
        self.launch: list[str] = []
        self.undecided: list[str] = []
        self.said = ""  # by the last echo
        self.turns = 0

    def follow(self, text: str) -> None:
        """Follow a script's text to its launch.

        Raises:
            InputError: the script ends before it launches, does not end, or is not bash.
        """
        try:
            with contextlib.suppress(_Stop):
                self._run(tokens_of(text))
        except RecursionError as error:
            raise InputError(
                "the script calls or reads itself without an end; name the script that launches"
            ) from error
        except (IndexError, StopIteration, ValueError) as error:  # half a loop, a case without a word, an open quote
            raise InputError(
                "the script is not bash that can be followed to its launch; check it with bash -n"
            ) from error

    def _run(self, tokens: Sequence[Token]) -> None:
        position = 0
        while position < len(tokens):
            self.turns += 1
            if self.turns > 100 * _MOST_TURNS:
                raise InputError("the script has loops that do not end without running it; write its command in a file")
            token = tokens[position]
            if token.is_operator and token.text != "(":
                position += 1
            elif token.text in ENDS and not token.is_operator:
                end = end_of(tokens, position)
                self._compound(token.text, tokens[position + 1 : end])
                position = end + 1
            elif (name := function_name(tokens, position)) is not None:
                start = next(index for index in range(position, len(tokens)) if tokens[index].text == "{")
                end = brace_end(tokens, start)
                self.functions[name] = list(tokens[start + 1 : end])
                position = end + 1
            else:
                position = self._list(tokens, position)

    def _list(self, tokens: Sequence[Token], position: int) -> int:
        """A command, with those that follow it by ``&&`` and ``||``."""
        is_true: bool | None = True
        takes, operation = True, ""
        while True:
            is_group = position < len(tokens) and tokens[position].text == "{"
            end = brace_end(tokens, position) + 1 if is_group else position
            while end < len(tokens) and tokens[end].text not in ("&&", "||", ";", "\n", "&", ";;"):
                end += 1
            if takes:
                is_true = (
                    self._group(tokens[position + 1 : end - 1]) if is_group else self._command(tokens[position:end])
                )
            operation = tokens[end].text if end < len(tokens) else ""
            if operation not in ("&&", "||"):
                return end + 1
            takes = is_true is not False if operation == "&&" else is_true is False
            position = end + 1
            while position < len(tokens) and tokens[position].text == "\n":
                position += 1

    def _group(self, tokens: Sequence[Token]) -> bool | None:
        """Follow the commands between braces; what they return is not known."""
        self._run(tokens)
        return None

    def _command(self, tokens: Sequence[Token]) -> bool | None:
        """Follow one command; what it returns, where that is known."""
        words: list[str] = []
        for token_index, token in enumerate(tokens):
            if token.items is not None:
                self._set_array(token)
            elif token.is_operator:
                if token.text in ("|", ">", ">>", "&>", "2>&1") and words:
                    break
                if token.text in ("<<", "<<-") and words and words[0] in _SHELLS:
                    self._run(tokens_of(self.variables.text(tokens[token_index + 1].text)))
                    return True
            elif (not words or words[0] in _DECLARES) and (match := _ASSIGNMENT.fullmatch(token.text)):
                self._assign(match)
            elif words[:1] == ["[["] and token.text in ("==", "=", "!=", "=~"):
                words.append(token.text)
            elif words[:1] in (["["], ["[["], ["test"], ["!"]):
                words += self.variables.expanded(token.text) or [""]
            else:
                words += self.variables.expanded(token.text)
        return self._simple(words) if words else True

    def _simple(self, words: list[str]) -> bool | None:
        name = words[0]
        if name == "!":
            told = self._simple(words[1:])
            return None if told is None else not told
        if name in ("[", "[[", "test"):
            return self._test(words[1:-1] if name != "test" else words[1:], f"{' '.join(words)}")
        if name == "exit":
            missing = "".join(f", without {condition}" for condition in self.undecided)
            raise InputError(
                f"the script ends before it launches{missing}: {self.said or 'exit'}; give what it asks for, as in "
                "--from 'NAME=VALUE SCRIPT ARGUMENT …'"
            )
        if name == "false":
            return False
        if name in ("shift", "unset", "eval", "source", "."):
            self._builtin(name, words[1:])
        elif name == "echo":
            self.said = without_unset(MARK.sub(r"\1", " ".join(words[1:])))
        elif name in self.functions:
            outer, self.variables.words = self.variables.words, words[1:]
            self._run(self.functions[name])
            self.variables.words = outer
        elif name in ("true", ":", "set", "cd", "mkdir", "module", "ulimit", "sleep", "wait", *_DECLARES):
            return True
        else:
            return self._program(words)
        return True

    def _program(self, words: list[str]) -> bool | None:
        """A program: a shell's own text is followed, and one of Python with options is the launch."""
        inner = next((index for index, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)), 0)
        if inner and words[inner - 1 if inner else 0].startswith(("bash", "sh", "-")) and inner + 1 < len(words):
            self._run(tokens_of(words[inner + 1]))
            return None
        if words[0] in _SHELLS and (files := [word for word in words[1:] if (self.folder / word).is_file()]):
            self._run(tokens_of(read_text(self.folder / files[0], "correct the script")))
            return True
        scripts = [index for index, word in enumerate(words) if word.endswith(".py") or word == "-m"]
        names = [word.rpartition("/")[2] for word in words]
        is_launcher = len(words) > 2 and (
            names[0] in _LAUNCHERS or (names[0] in _WRAPPERS and not {*_LAUNCHERS}.isdisjoint(names))
        )
        if is_launcher or (scripts and sum(word.startswith("--") for word in words[scripts[0] :]) > 3):
            self.launch = words
            raise _Stop
        return None

    def _builtin(self, name: str, words: Sequence[str]) -> None:
        if name == "shift":
            del self.variables.words[: int(words[0]) if words and words[0].isdigit() else 1]
        elif name == "unset":
            for variable in words:
                self.variables.values.pop(variable, None)
        elif name == "eval":
            self._run(tokens_of(" ".join(words)))
        elif words:
            file = self.folder / MARK.sub("", words[0])
            if not file.is_file() and (self.folder / file.name).is_file():
                file = self.folder / file.name
            if file.is_file():
                self._run(tokens_of(read_text(file, "correct the script")))
            else:
                self.undecided.append(f"source {file.name}")

    def _assign(self, match: re.Match[str]) -> None:
        name, adds, raw = match.groups()
        before = self.variables.values.get(name, [""])[0] if adds else ""
        text = before + self.variables.text(raw)
        if len(text) > _MOST_CHARACTERS:
            raise InputError(
                f"{name} of the script grows beyond {_MOST_CHARACTERS:,} characters; give it before SCRIPT"
            )
        self.variables.values[name] = [text]

    def _set_array(self, token: Token) -> None:
        name, adds = token.text.rstrip("=").rstrip("+"), token.text.endswith("+=")
        items = [word for item in token.items or () for word in self.variables.expanded(item)]
        if len(items) > _MOST_WORDS:
            raise InputError(f"{name} of the script grows beyond {_MOST_WORDS:,} words; name a script that ends")
        self.variables.values[name] = [*(self.variables.values.get(name, []) if adds else []), *items]

    def _compound(self, kind: str, body: Sequence[Token]) -> None:
        if kind == "if":
            self._if(body)
        elif kind == "case":
            self._case(body)
        else:
            self._loop(kind, body)

    def _if(self, body: Sequence[Token]) -> None:
        for keyword, condition, then in branches_of(body):
            if keyword == "else" or self._holds(condition):
                self._run(then)
                return

    def _holds(self, condition: Sequence[Token]) -> bool:
        is_true: bool | None = None
        start, operation = 0, ""
        for token_index in range(len(condition) + 1):
            is_end = token_index == len(condition)
            if is_end or (
                condition[token_index].is_operator and condition[token_index].text in ("&&", "||", ";", "\n")
            ):
                part = [token for token in condition[start:token_index] if not token.is_operator or token.text != "("]
                if part and not (operation == "&&" and is_true is False) and not (operation == "||" and is_true):
                    is_true = self._condition(part)
                operation = (
                    operation if is_end or condition[token_index].text in (";", "\n") else condition[token_index].text
                )
                start = token_index + 1
        return is_true is True

    def _condition(self, tokens: Sequence[Token]) -> bool | None:
        text = " ".join(token.text for token in tokens)
        if tokens[0].is_operator or text.startswith("(("):
            return None
        told = self._command(tokens)
        if told is None and text not in self.undecided:
            self.undecided.append(text)
        return told

    def _case(self, body: Sequence[Token]) -> None:
        subject = without_unset(self.variables.text(body[0].text))
        position = 2
        while position < len(body):
            while position < len(body) and body[position].is_operator:
                position += 1
            patterns = []
            while position < len(body) and body[position].text != ")":
                if not body[position].is_operator:
                    patterns.append(self.variables.text(body[position].text))
                position += 1
            end, depth = position, 0
            while end < len(body) and (depth or body[end].text != ";;"):
                depth += (body[end].text == "case") - (body[end].text == "esac")
                end += 1
            if any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns):
                self._run(body[position + 1 : end])
                return
            position = end + 1

    def _loop(self, kind: str, body: Sequence[Token]) -> None:
        start = next(index for index, token in enumerate(body) if token.text == "do" and not token.is_operator)
        head, inner = body[:start], body[start + 1 :]
        if kind == "for":
            words = [
                word for token in head[2:] if not token.is_operator for word in self.variables.expanded(token.text)
            ]
            for word in words:
                self.variables.values[head[0].text] = [word]
                self._run(inner)
            return
        turns = 0
        while self._holds(head) is (kind == "while") and turns < _MOST_TURNS:
            turns += 1
            self._run(inner)

    def _test(self, words: Sequence[str], text: str) -> bool | None:
        """What a test in brackets tells; None: only running would."""
        for joint, combine in (("||", any), ("-o", any), ("&&", all), ("-a", all)):
            if joint in words:
                index = words.index(joint)
                sides = [self._test(words[:index], text), self._test(words[index + 1 :], text)]
                return None if None in sides else combine(bool(side) for side in sides)
        if words[:1] == ["!"]:
            told = self._test(words[1:], text)
            return None if told is None else not told
        plain = [without_unset(word) for word in words]
        if any(MARK.search(word) for word in plain):
            return None
        if not plain or (len(plain) == 1 and not plain[0].startswith("-")):
            return bool(plain and plain[0])
        if plain[0] in ("-z", "-n"):
            return (not "".join(plain[1:])) is (plain[0] == "-z")
        if len(plain) == 3 and plain[1] in ("=", "==", "!="):
            return fnmatch.fnmatchcase(plain[0], plain[2]) is (plain[1] != "!=")
        if len(plain) == 3 and plain[1] in _COMPARISONS:
            told_text = self.variables.sum_of(f"({plain[0] or 0}) {_COMPARISONS[plain[1]]} ({plain[2] or 0})")
            return None if MARK.search(told_text) else told_text == "1"
        return None
