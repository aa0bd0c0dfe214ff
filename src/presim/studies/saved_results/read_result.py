"""Reads a result that any verb wrote, of this version or the last."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from presim.errors import InputError
from presim.studies.saved_results.decode import decode
from presim.studies.saved_results.kinds import KINDS, ResultKind, imported
from presim.system.files import to_type

_Answer = TypeVar("_Answer")
_SCHEMA = re.compile(r"presim-([a-z-]+)/(\d{1,9})")
INTERRUPTED = "the work was interrupted"  # where a file does not say why it is partial
_BY_NAME = {kind.name: kind for kind in KINDS}
_DAMAGES = (
    KeyError,
    StopIteration,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    ZeroDivisionError,
    OverflowError,
)


@dataclasses.dataclass(frozen=True)
class SavedResult:
    """A result and how it is shown."""

    path: Path
    kind: ResultKind
    content: Any  # of the type that the kind names
    partial: str  # why it is not whole, in words; empty: it is

    def shown(self, part: str) -> Any:
        """What one of the kind's functions makes of the content: ``render``, ``write`` or ``page``.

        Raises:
            InputError: the content lacks what the function shows.
        """
        return self.read_by(self.kind.part(part))

    def read_by(self, function: Callable[[Any], _Answer]) -> _Answer:
        """What a function makes of the content.

        Raises:
            InputError: the content lacks what the function reads.
        """
        try:
            return function(self.content)
        except _DAMAGES as error:
            raise _damaged(self.path, self.kind, repr(error)) from error


def read(path: Path) -> SavedResult:
    """Read a result; of the folder of a saved job, its simulation on its own cluster.

    Raises:
        InputError: the file cannot be read, no verb wrote it, or a version did that is not read.
    """
    if path.is_dir():
        return _of_job(path)
    document = _with_name(decode(path), path)
    kind, version = _kind_of(document, path)
    if version > kind.version:
        raise InputError(f"{path} was written by a newer presim ({_versions(kind, version)}); upgrade presim")
    if version < kind.version and version not in kind.upgrades:
        remedy = f"create it again with this version's `{kind.verb}`"
        raise InputError(f"{path} was written by an older presim ({_versions(kind, version)}); {remedy}")
    try:
        for function in (kind.upgrades[older] for older in range(version, kind.version)):
            document = imported(function)(document) if function else document
        content = to_type(document, kind.part("struct")) if kind.struct else document
    except (msgspec.ValidationError, *_DAMAGES) as error:
        raise _damaged(path, kind, str(error)) from error
    if kind.problem and (problem := kind.part("problem")(content)):
        raise _damaged(path, kind, problem)
    result = SavedResult(path, kind, content, _partial(document))
    if not kind.struct:
        result.shown("render")  # a dictionary is checked by what is made of it
    return result


def _damaged(path: Path, kind: ResultKind, reason: str) -> InputError:
    return InputError(f"{path} is a damaged result of `{kind.verb}` ({reason}); write it again")


def _of_job(path: Path) -> SavedResult:
    from presim.studies.saved_jobs import result_of

    return SavedResult(path, _BY_NAME["run"], result_of(path), "")


def _with_name(document: Any, path: Path) -> dict[str, Any]:
    """The document as an object; `presim graph show` of the last version wrote a list of modules."""
    if isinstance(document, list) and document and all(isinstance(row, dict) and "flops" in row for row in document):
        return {"modules": document}
    if not isinstance(document, dict):
        raise _foreign(path)
    return document


def _kind_of(document: dict[str, Any], path: Path) -> tuple[ResultKind, int]:
    """The kind and version that a file names, or those of a file without a name that has the kind's fields."""
    if (schema := document.get("schema")) is not None:
        match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
        if match is None or match[1] not in _BY_NAME:
            raise InputError(f"{path} has the schema {_short(schema)}, which this presim does not know; upgrade presim")
        return _BY_NAME[match[1]], int(match[2])
    name, version = document.get("kind"), document.get("schema_version", 0)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise InputError(f"{path} has the schema_version {_short(version)}, which is no version; write it again")
    if isinstance(name, str) and "schema_version" in document:
        if name not in _BY_NAME:
            raise InputError(f"{path} is of the kind {_short(name)}, which this presim does not know; upgrade presim")
        return _BY_NAME[name], version
    matches = [kind for kind in KINDS if document.keys() >= set(kind.fields.split())]
    if not matches:
        raise _foreign(path)
    return max(matches, key=lambda kind: len(kind.fields)), version


def _versions(kind: ResultKind, version: int) -> str:
    readable = sorted({kind.version, *kind.upgrades} - {0})
    return f"schema {version}, this one reads {' and '.join(map(str, readable))}"


def _partial(document: dict[str, Any]) -> str:
    """Why the result is not whole: a sentence, or a mapping with one."""
    reason = document.get("partial")
    if isinstance(reason, dict):
        reason = next((text for text in reason.values() if isinstance(text, str)), INTERRUPTED)
    return reason if isinstance(reason, str) else INTERRUPTED if reason else ""


def _foreign(path: Path) -> InputError:
    return InputError(f"{path} is not a result of presim; name a file that --json of a verb wrote, or a saved job")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
