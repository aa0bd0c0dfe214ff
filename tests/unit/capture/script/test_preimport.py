"""Importing a script's modules before it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from presim.capture.script.preimport import RankRead, import_leading, leading_imports, preimport

PREPARES = """
import sys, types
def offer():
    module = types.ModuleType("presim_test_stand_in")
    module.multiply = lambda a, b: a * b
    sys.modules.setdefault(module.__name__, module)
"""
TRAINS = """
import json.tool, sys, types
own = types.ModuleType("presim_test_own")
own.add = lambda a, b: a + b
sys.modules["presim_test_own"] = own
import presim_test_helper
presim_test_helper.offer()
from presim_test_stand_in import multiply
json.tool.presim_seen = __name__, multiply(2, 3)
if __name__ == "__main__":
    raise SystemExit(1)
"""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Python with PyTorch imported and without ``json.tool``."""
    made = SimpleNamespace(_lazy_init=lambda: None, current_device=lambda: 3, get_device_properties=lambda: None)
    native = SimpleNamespace(_cuda_getDeviceCount=lambda: 8)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made, _C=native))
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    return made


@pytest.mark.parametrize("named", [".", "{folder}"])  # from where the script lies, or as a whole path
def test_imports_stay_and_the_script_s_files_and_stand_ins_are_removed(
    named: str, tmp_path: Path, cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "presim_test_helper.py").write_text(PREPARES)
    script = Path(named.format(folder=tmp_path)) / "train.py"
    script.write_text(TRAINS)
    arguments, path = [*sys.argv], [*sys.path]
    preimport(script)
    assert sys.modules["json.tool"].presim_seen == ("presim_preimport", 6)
    assert not {"presim_test_helper", "presim_test_stand_in", "presim_test_own", "presim_preimport"} & set(sys.modules)
    assert (sys.argv, sys.path) == (arguments, path)


def test_using_the_device_raises(tmp_path: Path, cuda: SimpleNamespace) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nassert torch.cuda.current_device() == 0\ntorch.cuda._lazy_init()\n")
    with pytest.raises(RuntimeError, match=r"^a module uses the device while it is imported$"):
        preimport(script)
    assert cuda.current_device() == 3


def test_a_module_that_copied_a_replaced_function_calls_pytorch_s_later(
    tmp_path: Path, cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor copies `torch.cuda.current_device` and `get_device_properties`, Megatron `_lazy_init`."""
    monkeypatch.setattr(json, "presim_kept", None, raising=False)
    script = tmp_path / "train.py"
    script.write_text("import json\nfrom torch import cuda\njson.presim_kept = cuda.current_device, cuda._lazy_init\n")
    preimport(script)
    current_device, lazy_init = json.presim_kept  # type: ignore[attr-defined]
    assert (current_device(), lazy_init()) == (3, None)


def test_the_compilers_hashes_are_computed(
    tmp_path: Path, cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    code = SimpleNamespace(torch_key=lambda: read.append("torch"), triton_key=lambda: read.append("triton"))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", code)
    (tmp_path / "train.py").write_text("")
    preimport(tmp_path / "train.py")
    assert read == ["torch", "triton"]


def test_leading_imports_are_parsed_from_the_source() -> None:
    source = """'Train.'
from __future__ import annotations
import os, torch.nn as nn
from torch import optim, distributed as dist
from .beside import model
os.environ["A"] = "1"
import late
"""
    assert leading_imports(source) == [
        ("os", ()), ("torch.nn", ()), ("torch", ("optim", "distributed")),
    ]  # fmt: skip


def test_imports_end_at_the_first_module_of_the_user(tmp_path: Path, cuda: SimpleNamespace) -> None:
    (tmp_path / "presim_test_own_model.py").write_text("")
    script = tmp_path / "train.py"
    script.write_text("import presim_test_own_model\nimport json.tool\n")
    import_leading(str(script), (), is_module=False)
    assert not {"presim_test_own_model", "json.tool"} & set(sys.modules)
    script.write_text("import json.tool\nimport presim_test_own_model\n")
    import_leading(str(script), (), is_module=False)
    assert "json.tool" in sys.modules


@pytest.mark.parametrize(
    ("line", "compiles"),
    [
        ("model = torch.compile(model)", True),
        ("model.compile(dynamic=True)", True),
        ("torch._inductor.config.max_autotune = True", True),
        ("word = re.compile('torch')", False),
        ("compiled = options.compile", False),
    ],
)
def test_the_compiler_is_imported_for_a_script_that_compiles(
    line: str, compiles: bool, tmp_path: Path, cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    monkeypatch.setattr("presim.capture.script.preimport.importlib.import_module", imported.append)
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n\n{line}\n")
    import_leading(str(script), (), is_module=False)
    assert imported == ["torch._inductor.compile_fx"] * compiles


def test_a_package_that_reads_its_rank_during_import_is_refused(
    tmp_path: Path, cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "presim_test_package.py").write_text("import os\nRANK = os.environ.get('RANK')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("presim.capture.script.preimport._is_installed", lambda name: True)
    script = tmp_path / "train.py"
    script.write_text("import presim_test_package\n")
    with pytest.raises(RankRead, match=r"^RANK$"):
        import_leading(str(script), ("RANK", "LOCAL_RANK"), is_module=False)
    sys.modules.pop("presim_test_package")
    import_leading(str(script), ("LOCAL_RANK",), is_module=False)
