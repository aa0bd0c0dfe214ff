"""What kept captures depend on."""

from __future__ import annotations

from pathlib import Path

import presim
from presim.capture.setup.capture_version import capture_sources


def test_kept_captures_go_by_the_code_of_every_package_that_captures() -> None:
    package = Path(presim.__file__).parent
    sources = capture_sources(package)
    modules = ("capture/capture_job.py", "capture/processes/wave.py", "capture/reading/assemble.py", "trace/schema.py")
    assert {package / name for name in modules} <= set(sources)
    assert any(path.suffix == ".cpp" and path.parent.name == "values" for path in sources)
