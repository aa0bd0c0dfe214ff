"""A model file is read as it was written, and one that contradicts itself is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from presim.cost.learned.learned_model_file import FORMAT, VERSION, LearnedModel, Tree, read, write
from presim.errors import InputError

MODEL = LearnedModel(
    format=FORMAT, version=VERSION, kind="softmax", gpu="h100-sxm", analytic=(1, 2), features=("size", "fill"),
    thresholds=((1.0, 2.0), ()), trees=(Tree((0, -1, 0, -1, -1), (1, 100, 0, 200, 300)),), limit=1.0,
    widths_us=(10.0,), widths=(0.2, 0.1), sources=(), variants=("",), held_out=(),
)  # fmt: skip


def changed(path: Path, **fields: object) -> Path:
    write(msgspec.structs.replace(MODEL, **fields), path)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(MODEL, tmp_path / "a.json")
    assert read(tmp_path / "a.json") == MODEL
    write(MODEL, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"version": 9}, "is presim-learned-prices version 9; this presim reads"),
        ({"thresholds": ((1.0,),)}, "contradicts itself: 2 features, but thresholds for 1"),
        ({"thresholds": ((2.0, 1.0), ())}, "contradicts itself: thresholds that do not ascend"),
        ({"widths": (0.1,)}, "contradicts itself: 1 widths for 1 edges"),
        ({"trees": (Tree((0, -1), (0, 1)),)}, "contradicts itself: tree 0 is not a whole binary tree"),
        ({"trees": (Tree((-1, -1), (0, 1)),)}, "contradicts itself: tree 0 is not a whole binary tree"),
        ({"trees": (Tree((7, -1, -1), (0, 1, 1)),)}, "contradicts itself: tree 0 is not a whole binary tree"),
        ({"trees": (Tree((1, -1, -1), (0, 1, 1)),)}, "contradicts itself: tree 0 is not a whole binary tree"),
        ({"limit": 50.0}, "is not a file of learned prices: Expected `float` <= 2.0"),
    ],
)
def test_a_bad_model_is_refused(tmp_path: Path, fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(changed(tmp_path / "bad.json", **fields))
    assert complaint in str(caught.value)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("no")
    with pytest.raises(InputError, match=r"text\.json is not a file of learned prices"):
        read(tmp_path / "text.json")
    with pytest.raises(InputError, match=r"absent\.json: No such file or directory"):
        read(tmp_path / "absent.json")
