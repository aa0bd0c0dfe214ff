"""A learned model's file: JSON, checked when read, with its origin and its held-out error.

A model corrects the analytic price of one class of work on one GPU: ``duration = analytic * exp(trees(features))``. The
trees are bounded and constant outside the measured shapes, so the price there scales like the formula.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from presim.errors import InputError
from presim.system.files import FormatError, decode_json, read_bytes, write_file
from presim.system.files.field_bounds import Count, Integer, Microseconds, Ratio, Real, Share, Version, WholeNanoseconds

FORMAT, VERSION = "presim-learned-prices", 1
LEAF_UNIT = 1e-4  # leaves are integers in this unit of the ratio's logarithm
Leaf = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=1 << 31)]  # also the number of a threshold


class MeasurementSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Origin of measurements."""

    name: str
    commit: str
    sha256: str  # of the files' names and contents
    rows: Count  # used, of those accepted
    rejected: dict[str, Count] = {}  # reason -> rows


class HeldOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Result on shapes held out from the fit. Errors are relative to the measured time."""

    name: str
    points: Count
    mape: Ratio
    median: Ratio
    analytic_mape: Ratio  # of the formula without the correction
    within: Share  # share of points inside the stated 80 % interval


class Tree(msgspec.Struct, frozen=True, array_like=True):
    """A binary tree in preorder. An inner node has a feature and a threshold number, a leaf has -1 and a value.

    ``x <= threshold`` goes to the first child.
    """

    split: tuple[Integer, ...]
    value: tuple[Leaf, ...]


class LearnedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file."""

    format: str
    version: Version
    kind: str  # class of work, a key of `features.KINDS`
    gpu: str  # catalogue id
    analytic: tuple[WholeNanoseconds, ...]  # prices of `probes.PROBES` by the corrected formula, ns
    features: tuple[str, ...]
    thresholds: tuple[tuple[Real, ...], ...]  # per feature, ascending
    trees: tuple[Tree, ...]
    limit: Annotated[float, msgspec.Meta(gt=0, le=2)]  # on the logarithm of the correction
    widths_us: tuple[Microseconds, ...]  # edges between classes of duration, us
    widths: tuple[Share, ...]  # 80 % interval in each class, relative
    sources: tuple[MeasurementSource, ...]
    levels: dict[
        str, Ratio
    ] = {}  # sources measured under other conditions: factors by which their durations were divided
    variants: tuple[str, ...]  # measured layouts, backends or operators, see `features.variant`
    held_out: tuple[HeldOut, ...]
    units: str = "ratio of measured to analytic duration, natural logarithm; leaves in 1e-4"


def read(path: str | os.PathLike[str]) -> LearnedModel:
    """Read and check a model file.

    Raises:
        InputError: the file is not a model, has another version, or contradicts itself.
    """
    try:
        model = decode_json(read_bytes(path, "name a file that `presim fit` wrote"), LearnedModel)
    except FormatError as error:
        raise InputError(f"{path} is not a file of learned prices: {error}") from error
    if (model.format, model.version) != (FORMAT, VERSION):
        description = f"{model.format} version {model.version}"
        raise InputError(f"{path} is {description}; this presim reads {FORMAT} version {VERSION}: fit it again")
    wrong = next(_contradictions(model), None)
    if wrong:
        raise InputError(f"{path} contradicts itself: {wrong}")
    return model


def write(model: LearnedModel, path: str | os.PathLike[str]) -> None:
    """Write a model atomically. The same model gives the same bytes."""
    lines = [f'"{name}":{_encode(getattr(model, name))}' for name in sorted(model.__struct_fields__)]
    write_file(path, ("{" + ",\n".join(lines) + "}\n").encode())


def _encode(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _contradictions(model: LearnedModel) -> Iterator[str]:
    """Each inconsistency, as text."""
    if len(model.thresholds) != len(model.features):
        yield f"{len(model.features)} features, but thresholds for {len(model.thresholds)}"
    if any(list(edges) != sorted(edges) for edges in model.thresholds):
        yield "thresholds that do not ascend"
    if len(model.widths) != len(model.widths_us) + 1 or list(model.widths_us) != sorted(model.widths_us):
        yield f"{len(model.widths)} widths for {len(model.widths_us)} edges"
    for tree_index, tree in enumerate(model.trees):
        if not _is_complete_tree(tree, model.thresholds):
            yield f"tree {tree_index} is not a whole binary tree over the features"


def _is_complete_tree(tree: Tree, thresholds: Sequence[Sequence[float]]) -> bool:
    """Whether every inner node has two children and a known feature and threshold, and no node is left over."""
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
