"""Writes what Megatron-Bridge's own performance recipes set, for `presim compose --framework megatron`.

    python validation/megatron_recipes.py CHECKOUT

CHECKOUT is a clone of NVIDIA-NeMo/Megatron-Bridge. Its recipes are run with recorders in place of its configuration,
so that nothing of Megatron has to be installed. Kept are the plan of each recipe, the fields that the installed
Megatron-Bridge and Megatron-core have, and the names of those that they lack.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.composition.frameworks.megatron_recipes import MODELS, PLAN_FIELDS, RECIPES, SETTINGS
from presim.errors import InputError
from presim.system.files import write_file

_PACKAGE = "megatron.bridge.perf_recipes"
_OF_CHECKOUT = (_PACKAGE, "megatron.bridge.recipes")
_STUBBED = ("megatron", "torch", "transformers", "nvidia_resiliency_ext", "nemo_run")
_NAME = re.compile(
    r"(?P<model>.+)_(?P<kind>pretrain|peft)_(?P<gpus>\d+)gpu_(?P<gpu>[a-z0-9]+)_(?P<precision>[a-z0-9]+)_config"
)
_PRECISIONS = {
    "bf16": "bf16",
    "fp8cs": "fp8-current",
    "fp8ds": "fp8-delayed",
    "fp8sc": "fp8-block",
    "fp8mx": "mxfp8",
    "nvfp4": "nvfp4",
}


class _Recorder:
    """Takes any attribute, call and comparison, and remembers what was set."""

    def __init__(self) -> None:
        object.__setattr__(self, "fields", {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.fields.setdefault(name, _Recorder())

    def __setattr__(self, name: str, value: object) -> None:
        self.fields[name] = value

    def __call__(self, *arguments: object, **fields: object) -> Any:
        recorder = _Recorder()
        recorder.fields.update(fields)
        return recorder

    def __getitem__(self, key: object) -> Any:
        return _Recorder()

    def __bool__(self) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return False

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __or__(self, other: object) -> Any:
        return self

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (object,)

    __ror__ = __or__


class _Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        recorder = _Recorder()
        setattr(self, name, recorder)
        return recorder


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports recipes from a checkout, and stubs for everything else of Megatron and PyTorch."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in _STUBBED:
            return None
        file = self.source.joinpath(*fullname.split("."))
        is_package = file.is_dir()
        file = file / "__init__.py" if is_package else file.with_suffix(".py")
        if not fullname.startswith(_OF_CHECKOUT) or not file.exists():
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return importlib.util.spec_from_file_location(
            fullname, file, submodule_search_locations=[str(file.parent)] if is_package else None
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


def _set_graphs(model: Any, modules: list[str]) -> None:
    """As Bridge's own for the Megatron-core that is installed."""
    model.cuda_graph_scope = modules


def _set_whole_graph(model: Any) -> None:
    model.cuda_graph_impl, model.cuda_graph_scope = "local", ["full_iteration"]


_GRAPHS = {
    "set_cuda_graph_modules": _set_graphs,
    "clear_cuda_graph_modules": lambda model: _set_graphs(model, []),
    "set_full_iteration_cuda_graph": _set_whole_graph,
}


def _recorded(recorder: _Recorder, prefix: str = "") -> dict[str, object]:
    """The fields that were set, with dotted names."""
    fields: dict[str, object] = {}
    for name, value in recorder.fields.items():
        if isinstance(value, _Recorder):
            fields |= _recorded(value, f"{prefix}{name}.")
        elif not name.startswith("_"):
            fields[prefix + name] = value
    return fields


def _recipes(source: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Names and fields of the recipes that pretrain, or train adapters, on one kind of GPU."""
    sys.meta_path.insert(0, _Finder(source))
    vars(importlib.import_module("megatron.bridge.utils.cuda_graph")).update(_GRAPHS)
    for file in sorted(source.joinpath(*_PACKAGE.split(".")).rglob("*.py")):
        if file.parent.parent.parent.name != "perf_recipes" or file.name == "__init__.py":
            continue
        module = importlib.import_module(".".join(file.relative_to(source).with_suffix("").parts))
        for name in sorted(vars(module)):
            if _NAME.fullmatch(name) and getattr(module, name).__module__ == module.__name__:
                yield name, _recorded(getattr(module, name)())


def _row(name: str, fields: dict[str, object]) -> dict[str, object] | None:
    named = _NAME.fullmatch(name)
    assert named is not None  # `_recipes` yields no others
    if named["model"] not in MODELS or named["precision"] not in _PRECISIONS or fields.get("ddp.use_megatron_fsdp"):
        return None
    plan = {field: fields.get(bridge) or 1 for field, bridge in PLAN_FIELDS.items()}
    settings = {field: fields[field] for field in SETTINGS if fields.get(field) is not None}
    return {
        "recipe": name.removesuffix("_config"),
        "model": named["model"],
        "gpu": named["gpu"],
        "gpus": int(named["gpus"]),
        "precision": _PRECISIONS[named["precision"]],
        "adapters": "lora" if named["kind"] == "peft" else "",
        "plan": plan,
        "settings": settings,
    }


def main() -> None:
    """Read the recipes and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    checkout: Path = parser.parse_args().checkout
    source = checkout / "src"
    if not source.joinpath(*_PACKAGE.split(".")).is_dir():
        raise InputError(f"{checkout} has no src/{_PACKAGE.replace('.', '/')}; name a clone of Megatron-Bridge")
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    rows = [row for name, fields in _recipes(source) if (row := _row(name, fields)) is not None]
    table = {"source": f"NVIDIA-NeMo/Megatron-Bridge src/{_PACKAGE.replace('.', '/')} at {commit}", "recipes": rows}
    lines = ",\n".join(json.dumps(row) for row in rows)
    write_file(RECIPES, f'{{"source": {json.dumps(table["source"])}, "recipes": [\n{lines}\n]}}\n'.encode())
    print(f"{len(rows)} recipes in {RECIPES}")


if __name__ == "__main__":
    with sentences():
        main()
