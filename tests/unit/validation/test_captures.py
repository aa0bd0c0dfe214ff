"""What a kept capture goes by."""

from __future__ import annotations

from pathlib import Path

import presim
from presim.validation import captures


def test_a_capture_goes_by_the_recipe_and_what_it_imports_in_turn_and_by_no_other_file(tmp_path: Path) -> None:
    files = {
        "train.py": "import torch\nimport layers  # noqa: E402\n",
        "layers.py": "from parts import norm\nimport train\n",
        "parts.py": "norm = 1\n",
        "train_other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert captures._texts(tmp_path / "train.py") == [files[name] for name in ("layers.py", "parts.py", "train.py")]


def test_kept_captures_go_by_the_code_of_every_package_that_captures() -> None:
    package = Path(presim.__file__).parent
    found = captures._sources(package)
    for source in ("capture/run.py", "capture/ranks/wave.py", "capture/reading/assemble.py", "trace/schema.py"):
        assert package / source in found
    assert any(path.suffix == ".cpp" and path.parent.name == "values" for path in found)
