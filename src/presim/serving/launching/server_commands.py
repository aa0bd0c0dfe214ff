"""Finds the engine, the model and the options in a command that starts an engine's server.

Read as its shell and its parser do: variables and launchers before the server are left out, names have ``-`` or ``_``,
and the last value of an option counts.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from presim.errors import InputError
from presim.serving.serving_plan import Kernels
from presim.system.files import shortened

_MODULES: dict[str, Kernels] = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.launch_server": "sglang",
    "tensorrt_llm.commands.serve": "trtllm",
}
_PROGRAMS: dict[str, Kernels] = {"vllm": "vllm", "sglang": "sglang", "trtllm-serve": "trtllm"}
_IMAGES: dict[Kernels, re.Pattern[str]] = {
    "vllm": re.compile(r"(?:^|/)vllm-openai(?::v?(\d+(?:\.\d+)+))?"),
    "sglang": re.compile(r"(?:^|/)lmsysorg/sglang(?::v?(\d+(?:\.\d+)+))?"),
}
_ENDS = ("&&", "||", ";", "|", "&")
# Options of these names take no value in any of the three engines; `true` and `false` may follow.
_FLAG = re.compile(
    r"--(?:(?:no|enable|disable|skip|trust|calculate|use|return|allow)-.*|enforce-eager|async-scheduling|headless|"
    r"language-model-only|.*-only|log-requests)$"
)
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
    "-m": "--model",
}


@dataclasses.dataclass(frozen=True)
class ServerCommand:
    """A command, taken apart."""

    engine: Kernels
    version: str | None  # of the container
    model: str | None
    options: Mapping[str, str]  # by name with dashes; an option without a value: empty


def read(command: str) -> ServerCommand:
    """Take a command apart.

    Raises:
        InputError: it starts none of the three engines, or is no command.
    """
    try:
        words = shlex.split(re.sub(r"\\\s*\n", " ", command), comments=True)
    except ValueError as error:
        raise InputError(f"--from is no command: {error}; correct {shortened(command)!r}") from error
    engine, version, behind = _server(words, command)
    behind = behind[: next((index for index, word in enumerate(behind) if word in _ENDS or ">" in word[:2]), None)]
    model, options = _options(behind)
    model = options.pop("--model", None) or options.pop("--model-path", None) or model
    return ServerCommand(engine, version, model, options)


def _server(words: Sequence[str], command: str) -> tuple[Kernels, str | None, list[str]]:
    """The engine, its version and the words behind its name."""
    container: tuple[Kernels, str | None, list[str]] | None = None
    for index, word in enumerate(words):
        for engine, image in _IMAGES.items():
            if container is None and (match := image.search(word)):
                container = engine, match[1], list(words[index + 1 :])
        engine_name = _PROGRAMS.get(PurePosixPath(word).name)
        if word in _MODULES and words[index - 1 : index] == ["-m"]:
            engine_name = _MODULES[word]
        if engine_name is None:
            continue
        behind = list(words[index + 1 :])
        has_verb = behind[:1] == ["serve"]
        if has_verb or word in _MODULES or engine_name == "trtllm":
            version = container[1] if container is not None and container[0] == engine_name else None
            return engine_name, version, behind[1:] if has_verb else behind
    if container is not None and container[0] == "vllm":  # whose entry point is the server
        return container
    raise InputError(
        f"--from starts no engine that is known here: {shortened(command)!r}; give a command of `vllm serve`, "
        "`python -m sglang.launch_server` or `trtllm-serve`"
    )


def _options(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The first word that belongs to no option, and the value of each option."""
    model: str | None = None
    options: dict[str, str] = {}
    index = 0
    while index < len(words):
        word, index = words[index], index + 1
        if not _is_option(word):
            if model is not None:
                raise InputError(f"--from names two models, {model} and {shortened(word)}; quote values with spaces")
            model = word
            continue
        written, has_value, value = word.partition("=")
        name = _SHORT.get(written, written)
        name = "--" + name.lstrip("-").replace("_", "-")
        following = words[index] if index < len(words) else ""
        is_flag = _FLAG.match(name) is not None and following.lower() not in ("true", "false")
        if not has_value and following and not _is_option(following) and not is_flag:
            value, index = following, index + 1
        options[name] = value
    return model, options


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.match(r"-\d", word)
