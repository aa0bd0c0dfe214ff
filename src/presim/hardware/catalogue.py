"""Finds GPUs, nodes and fabrics: built-in ones by id or alias, a user's own by the path of a TOML file.

Files are read on demand. A file with ``base = "<id>"`` overrides the named built-in file. Names are compared in lower
case, with ``-`` for spaces and underscores, and without the vendor.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from presim.errors import InputError, PresimError
from presim.hardware.cluster import Fabric, Node
from presim.hardware.codec import from_table, keys, load_toml, merge_tables, unsourced
from presim.hardware.gpu_schema import Gpu, Sourced
from presim.system.files import names_file, shortened

ROOT = Path(__file__).parent / "data"
P = TypeVar("P", bound=Sourced)
_FOLDERS: dict[type[Sourced], str] = {Gpu: "gpus", Node: "nodes", Fabric: "fabrics"}
_WORDS: dict[type[Sourced], str] = {Gpu: "GPU", Node: "node type", Fabric: "fabric"}


def gpu(name: str) -> Gpu:
    """A GPU by id, alias, or path of a TOML file."""
    return find(Gpu, name)


def node(name: str) -> Node:
    """A node type by id, alias, or path of a TOML file."""
    return find(Node, name)


def fabric(name: str) -> Fabric:
    """A fabric by id, alias, or path of a TOML file."""
    return find(Fabric, name)


def gpus() -> list[Gpu]:
    """All built-in GPUs, by id."""
    return [find(Gpu, name) for name in ids(Gpu)]


def nodes() -> list[Node]:
    """All built-in node types, by id."""
    return [find(Node, name) for name in ids(Node)]


def fabrics() -> list[Fabric]:
    """All built-in fabrics, by id."""
    return [find(Fabric, name) for name in ids(Fabric)]


def ids(kind: type[Sourced]) -> list[str]:
    """Sorted ids of the built-in parts of a kind. Reads no file."""
    return list(_builtin_ids(kind))


@functools.cache
def _builtin_ids(kind: type[Sourced]) -> tuple[str, ...]:
    """Cached: the files do not change, and every choice of a learned model looks up the built-in GPUs."""
    return tuple(sorted(path.stem for path in (ROOT / _FOLDERS[kind]).glob("*.toml")))


@functools.cache
def aliases(kind: type[Sourced]) -> Mapping[str, str]:
    """Aliases of the built-in parts of a kind, with their ids."""
    table: dict[str, str] = load_toml(ROOT / "aliases.toml")[_FOLDERS[kind]]
    return table


def find(kind: type[P], name: str) -> P:
    """A part by id, alias, or path of a TOML file.

    Raises:
        InputError: there is no such part; the message has the nearest names.
    """
    if name.endswith(".toml"):
        return read(kind, load_toml(Path(name)), name)
    part = _built_in(kind, builtin_path(kind, name).stem)
    assert isinstance(part, kind)
    return part


def read(kind: type[P], table: Mapping[str, Any], location: str) -> P:
    """A part from a user's table, which is complete or takes defaults from the built-in part named by ``base``."""
    return from_table(kind, _with_base(kind, {"id": Path(location).stem, **table}, location), location)


def builtin_path(kind: type[Sourced], name: str) -> Path:
    """The file of a built-in part, by id or alias."""
    plain = _normalise_name(name)
    path = ROOT / _FOLDERS[kind] / f"{aliases(kind).get(plain, plain)}.toml"
    if plain and "/" not in plain and names_file(path):
        return path
    similar_names = nearest(name, (kind,))
    hint = f"did you mean {' or '.join(similar_names)}? " if similar_names else ""
    raise InputError(
        f"unknown {_WORDS[kind]} {shortened(name)!r}: {hint}`presim hardware list` shows all; "
        f"a path ending in .toml is read as your own description."
    )


def nearest(name: str, kinds: Iterable[type[Sourced]]) -> list[str]:
    """Ids and aliases that resemble a name, nearest first."""
    names = [candidate for kind in kinds for candidate in (*ids(kind), *aliases(kind))]
    return list(dict.fromkeys(difflib.get_close_matches(_normalise_name(name), names, n=4, cutoff=0.5)))


def kind_of(path: str) -> type[Sourced]:
    """The kind of part in a user's file: the kind with the most matching keys."""
    table = load_toml(Path(path))
    base = table.get("base")
    based = [kind for kind in _FOLDERS if isinstance(base, str) and (base in ids(kind) or base in aliases(kind))]
    return max(based or _FOLDERS, key=lambda kind: sum(key.key in table for key in keys(kind)))


def _normalise_name(name: str) -> str:
    return re.sub(r"[ _]+", "-", name.strip().lower()).removeprefix("nvidia-").removeprefix("amd-")


@functools.cache
def _built_in(kind: type[Sourced], identity: str) -> Sourced:
    path = ROOT / _FOLDERS[kind] / f"{identity}.toml"
    part = from_table(kind, _with_base(kind, {"id": identity, **load_toml(path)}, path.name), path.name)
    if missing := unsourced(part):
        raise PresimError(f"data/{_FOLDERS[kind]}/{path.name}: no source for {', '.join(missing)}; add one.")
    return part


def _with_base(kind: type[Sourced], table: Mapping[str, Any], location: str, depth: int = 0) -> dict[str, Any]:
    """The table, with missing keys taken from its ``base``."""
    overrides = {key: value for key, value in table.items() if key != "base"}
    base = table.get("base")
    if base is None:
        return overrides
    if not isinstance(base, str) or depth > 3:
        raise InputError(
            f"{location}: base = {base!r} must be the id of a {_WORDS[kind]} that is not based on this one."
        )
    path = builtin_path(kind, base)
    return merge_tables(_with_base(kind, load_toml(path), path.name, depth + 1), overrides)
