"""A learned model's file: JSON that is checked field by field when read, and says what made it and how well it holds.

A model corrects the analytic price of one class of work on one GPU: ``duration = analytic * exp(trees(features))``.
The trees are bounded, and constant beyond the measured shapes, so that what lies outside scales as the formula does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from presim.errors import InputError
from presim.files import write_file

FORMAT, VERSION = "presim-learned-prices", 1
LEAF_UNIT = 1e-4  # leaves are whole numbers of this much logarithm of a ratio
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where measurements came from."""

    name: str
    commit: str
    sha256: str  # of the files that were read, names and contents
    rows: int  # used, out of those accepted
    rejected: dict[str, int] = {}  # reason -> rows


class HeldOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a class of shapes that the fit never saw came out. Errors are relative to the measured time."""

    name: str
    points: int
    mape: float
    median: float
    analytic_mape: float  # of the formula without the correction
    within: Share  # share of points inside the stated 80 % interval


class Tree(msgspec.Struct, frozen=True, array_like=True):
    """A binary tree in preorder: at an inner node a feature and the number of its threshold, at a leaf -1 and a value.

    ``x <= threshold`` goes to the first child.
    """

    split: tuple[int, ...]
    value: tuple[int, ...]


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file."""

    format: str
    version: int
    kind: str  # class of work, a key of `features.KINDS`
    gpu: str  # catalogue id
    analytic: tuple[int, ...]  # what the formula that is corrected says of `probes.PROBES`, ns
    features: tuple[str, ...]
    thresholds: tuple[tuple[float, ...], ...]  # per feature, ascending
    trees: tuple[Tree, ...]
    limit: Annotated[float, msgspec.Meta(gt=0, le=2)]  # the correction's logarithm stays within
    widths_us: tuple[float, ...]  # edges between classes of duration, us
    widths: tuple[Share, ...]  # 80 % interval in each class, relative
    sources: tuple[Source, ...]
    levels: dict[str, float] = {}  # sources measured under other conditions: their durations were divided by this
    variants: tuple[str, ...]  # that were measured: layouts, backends or operators, see `features.variant`
    held_out: tuple[HeldOut, ...]
    units: str = "ratio of measured to analytic duration, natural logarithm; leaves in 1e-4"


def read(path: str | os.PathLike[str]) -> Model:
    """Read and check a model file.

    Raises:
        InputError: the file is no model, of another version, or contradicts itself.
    """
    try:
        model = msgspec.json.decode(Path(path).read_bytes(), type=Model)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is no file of learned prices: {error}") from error
    if (model.format, model.version) != (FORMAT, VERSION):
        found = f"{model.format} version {model.version}"
        raise InputError(f"{path} is {found}; this presim reads {FORMAT} version {VERSION}: fit it again")
    wrong = next(_contradictions(model), None)
    if wrong:
        raise InputError(f"{path} contradicts itself: {wrong}")
    return model


def write(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model: same model, same bytes. Appears whole or not at all."""
    lines = [f'"{name}":{_encode(getattr(model, name))}' for name in sorted(model.__struct_fields__)]
    write_file(path, ("{" + ",\n".join(lines) + "}\n").encode())


def _encode(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _contradictions(model: Model) -> Iterator[str]:
    """Each thing that cannot be, in words."""
    if len(model.thresholds) != len(model.features):
        yield f"{len(model.features)} features, but thresholds for {len(model.thresholds)}"
    if any(list(edges) != sorted(edges) for edges in model.thresholds):
        yield "thresholds that do not ascend"
    if len(model.widths) != len(model.widths_us) + 1 or list(model.widths_us) != sorted(model.widths_us):
        yield f"{len(model.widths)} widths for {len(model.widths_us)} edges"
    for place, tree in enumerate(model.trees):
        if not _whole(tree, model.thresholds):
            yield f"tree {place} is no whole binary tree over the features"


def _whole(tree: Tree, thresholds: Sequence[Sequence[float]]) -> bool:
    """Every inner node has two children, a known feature and a known threshold, and nothing is left over."""
    if len(tree.split) != len(tree.value):
        return False
    missing = 1
    for feature, value in zip(tree.split, tree.value):
        if missing == 0 or not -1 <= feature < len(thresholds):
            return False
        if feature >= 0 and not 0 <= value < len(thresholds[feature]):
            return False
        missing += 1 if feature >= 0 else -1
    return missing == 0
