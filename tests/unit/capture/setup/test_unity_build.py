from pathlib import Path

import pytest

from presim.capture.setup import unity_build


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder of C++ files of different sizes, one of them in a subfolder."""
    (tmp_path / "below").mkdir()
    for name, length in (("a.cpp", 10), ("b.cpp", 400), ("below/c.cpp", 300), ("d.cpp", 90)):
        (tmp_path / name).write_text("/" * length)
    (tmp_path / "all.h").write_text("")
    return tmp_path


def test_each_file_is_in_one_part_sorted_by_name(sources: Path) -> None:
    parts = unity_build.join(sources, parts=2)
    assert [part.read_text().splitlines() for part in parts] == [
        ['#include "b.cpp.inc"'],
        ['#include "a.cpp.inc"', '#include "below/c.cpp.inc"', '#include "d.cpp.inc"'],
    ]


def test_only_parts_end_in_cpp_and_nothing_else_is_touched(sources: Path) -> None:
    parts = unity_build.join(sources, parts=3)
    assert sorted(sources.rglob("*.cpp")) == sorted(parts)
    assert {path.name for path in sources.rglob("*.inc")} == {"a.cpp.inc", "b.cpp.inc", "c.cpp.inc", "d.cpp.inc"}
    assert (sources / "all.h").exists()


def test_there_are_at_most_as_many_parts_as_files(sources: Path) -> None:
    assert len(unity_build.join(sources, parts=9)) == 4


def test_a_folder_without_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 C\\+\\+ files"):
        unity_build.join(tmp_path, parts=2)
