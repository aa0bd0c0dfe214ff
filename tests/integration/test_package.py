"""The wheel has all that verbs need, and they run from it where there is no checkout.

The emulated libraries are left out, since `make package` compiles them; its examples run with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import presim

ROOT = Path(__file__).parents[2]
PAGE_SOURCES = "src/presim/app/web/"  # the bundle is in app/static


def tracked(*folders: str) -> list[str]:
    """Files that git has."""
    command = ["git", "ls-files", "-z", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not in a checkout of git")
    return listed.stdout.rstrip("\0").split("\0")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, without the emulated libraries."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from scikit_build_core.build import build_wheel; build_wheel({str(folder)!r}, {{'wheel.cmake': 'false'}})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    (path,) = folder.glob("presim-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, beside what it needs: this one's other packages, but not its presim."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], capture_output=True, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # .pth files within it, as presim's, do nothing
    return folder


def run(environment: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`presim` of the environment, from another folder."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(environment / "bin" / "presim"), *words]
    return subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False)


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    """Catalogue, models, templates, graphs, and the bundle of the page; not the page's sources."""
    names = {f"src/{name}" for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {name for name in tracked("src/presim") if not name.startswith(PAGE_SOURCES)}
    assert names == expected
    assert "src/presim/app/static/app.js" in names


@pytest.mark.long
def test_the_sdist_has_every_file_that_the_wheel_is_built_of(tmp_path: Path) -> None:
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    (path,) = tmp_path.glob("presim-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    others = {"pyproject.toml", "CMakeLists.txt", "loops.cmake", "LICENSE", "README.md"}
    assert {*others, *tracked("src/presim")} <= names


def test_verbs_run_where_there_is_no_checkout(environment: Path, tmp_path: Path) -> None:
    """A plan is composed and a load is served, with the results of the checkout."""
    assert run(environment, tmp_path, "--version").stdout == f"presim {presim.__version__}\n"
    examined = run(environment, tmp_path, "doctor", "--json", "-")
    assert str(environment) in json.loads(examined.stdout)["checks"][0]["found"]
    compose = "compose llama3-8b --gpu h100-sxm --nodes 1 --gpus-per-node 8 --seq 512 --json composed.json -q"
    assert run(environment, tmp_path, *compose.split()).returncode == 0
    composed = json.loads((tmp_path / "composed.json").read_text())
    expected = presim.ask("compose", "llama3-8b", gpu="h100-sxm", nodes=1, gpus_per_node=8, seq=512)
    assert composed["step_time_s"] == expected.step_time_s
    serve = "serve llama3-8b --gpu h100-sxm --requests 5 --input 64 --output 4 --json served.json --html served.html -q"
    assert run(environment, tmp_path, *serve.split()).returncode == 0
    assert json.loads((tmp_path / "served.json").read_text())["figures"]["completed"] == 5
    assert "Requests over time" in (tmp_path / "served.html").read_text()
