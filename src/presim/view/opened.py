"""Opens results of `presim search` and `presim serve` for the browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from presim.errors import InputError
from presim.files import FormatError, decode_json, read_bytes

_SERVING = "presim-serving/1"
_MOST_TRIALS = 5000  # that are drawn


@dataclasses.dataclass(frozen=True)
class Opened:
    """A result and the data of its pane."""

    label: str
    kind: Literal["search", "serving"]
    content: dict[str, Any]


def open_result(path: Path) -> Opened:
    """Read a result of a search or of serving.

    Raises:
        InputError: the file cannot be read, or is neither.
    """
    try:
        said = decode_json(read_bytes(path, "name a saved job, or a result of search or serve"))
    except FormatError as error:
        raise InputError(f"{path} is no JSON ({error}); name a saved job, or a result of search or serve") from error
    if isinstance(said, dict) and said.get("schema") == _SERVING:
        return Opened(path.name, "serving", said)
    if isinstance(said, dict) and isinstance(said.get("trials"), list) and isinstance(said.get("best"), list):
        return Opened(path.name, "search", _search(said, path))
    raise InputError(
        f"{path} is not a result of `presim search --json` or `presim serve --json`; for one of `presim run`, name the "
        "folder that --save made, or use `presim report`"
    )


def _search(said: dict[str, Any], path: Path) -> dict[str, Any]:
    """Data of a search: its best points, and the positions of all priced points."""
    try:
        varied = list(said["varied"])
        priced = [trial for trial in said["trials"] if trial["figures"]]
        fates: dict[str, int] = {}
        for trial in said["trials"]:
            fates[trial["fate"]] = fates.get(trial["fate"], 0) + 1
        return {
            "subject": said["subject"],
            "strategy": said["strategy"],
            "complete": said["complete"],
            "varied": varied,
            "fates": fates,
            "best": [_trial(said["trials"][number], varied) for number in said["best"]],
            "front": said["front"],
            "importance": said["importance"],
            "notes": said["notes"],
            "points": [_trial(trial, varied) for trial in priced[:_MOST_TRIALS]],
        }
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} is a damaged result of a search ({error!r}); write it anew with --json") from error


def _trial(trial: dict[str, Any], varied: list[str]) -> dict[str, Any]:
    return {
        "number": trial["number"],
        "point": {name: trial["point"].get(name) for name in varied},
        "figures": trial["figures"],
    }
