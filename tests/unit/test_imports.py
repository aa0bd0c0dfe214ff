"""Imports go one way, along the data flow; torch stays where a script runs; what is imported is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "presim"

# Part -> what it may import of presim, besides itself and these: they know at most each other.
EVERYWHERE = {
    "presim.process.budgets",
    "presim.constants",
    "presim.process.compiled_loops",
    "presim.errors",
    "presim.files",
    "presim.process.interrupts",
    "presim.process.localhost",
    "presim.files.scratch",
    "presim.plugins",
    "presim.quantities",
    "presim.files.field_bounds",
    "presim.files.field_docs",
    "presim.units",
    "presim.verb_packages",
}
MAY_IMPORT = {
    "budgets": set(),
    "verb_packages": set(),
    "calibration": set(),
    "compiled_loops": set(),
    "errors": set(),
    "files": set(),
    "interrupts": set(),
    "localhost": set(),
    "scratch": set(),
    "plugins": set(),
    "quantities": set(),
    "field_bounds": set(),
    "field_docs": set(),
    "units": set(),
    "trace": set(),
    "hardware": set(),
    "figures": set(),
    "result": {"presim.result"},
    "network": {"presim.hardware"},
    "replan": {"presim.trace"},
    # Programs of frameworks for a plan: the plan and what a capture depends on; the programs import torch.
    "frameworks": {
        "presim.composition.plan",
        "presim.composition.graph.take",
        "presim.hardware",
        "presim.capture.setup",
    },
    "cost": {"presim.trace", "presim.hardware", "presim.hardware.network"},
    "engine": {"presim.trace", "presim.cost.price", "presim.cost.overlap", "presim.hardware"},
    "analysis": {
        "presim.trace",
        "presim.cost.price",
        "presim.cost.collectives.communicator_setup",
        "presim.hardware",
        "presim.engine.calls",
        "presim.engine.matching",
        "presim.engine.timeline",
        "presim.result",
        "presim.result",
    },
    "gate": {"presim.result", "presim.report.json", "presim.studies.gate.text", "presim.capture.ctrl_c"},
    "training": {"presim.hardware", "presim.result", "presim.result"},
    "report": {
        "presim.studies.gate.check",
        "presim.result",
        "presim.trace",
        "presim.cost.price",
        "presim.hardware",
        "presim.engine.timeline",
        "presim.analysis",
        "presim.result",
    },
    # What a capture would say of a call is asked of the reading itself.
    "profile": {"presim.trace", "presim.hardware", "presim.cost.measured", "presim.capture.reading"},
    "capture": {"presim.trace", "presim.hardware"},
    # A model's graph is taken in a process of its own, with the emulated libraries where PyTorch lacks its own.
    # What an operator's work is, is asked of the reading of captures itself.
    "graph": {"presim.trace", "presim.hardware", "presim.capture.setup", "presim.capture.reading"},
    "passes": {
        "presim.composition.graph",
        *(f"presim.trace.{name}" for name in ("dtypes", "group_sizes", "routing", "routing_policy")),
    },
    "compose": {"presim.composition.graph", "presim.passes", "presim.trace", "presim.hardware"},
    # Files that start a plan on frameworks: a client of the plan alone; nothing is composed for them.
    "launch": {
        "presim.composition.plan",
        "presim.composition.stages",
        "presim.composition.graph.take",
        "presim.hardware",
    },
    # The simulation of what is being captured: a client of both ends, started by the launcher.
    "live": {"presim.trace", "presim.hardware", "presim.capture", "presim.cost", "presim.engine"},
    # What a model's own code says of its layers is asked in a process of its own, as its graph is.
    "models": {"presim.composition.graph.take", "presim.composition.graph.export.vllm_models", "presim.capture.setup"},
    # Deployments of models: a client of prices and hardware, with a loop of its own over requests.
    "serving": {
        "presim.trace",
        "presim.hardware",
        "presim.hardware.network",
        "presim.cost",
        "presim.models",
        "presim.composition.graph.take",
    },
    "shim": set(),
}
CLIENTS = {
    "saved_jobs",
    "saved_results",
    "sources",
    "run_calibration",
    "view",
    "explain",
    "changes",
    "mixed_clusters",
    "cli",
    "search",
    "validation",
    "pipeline",
    "prepared",
    "target",
    "plans",
    "options",
    "verbs",
    "api",
    "job",
    "__init__",
    "__main__",
}  # they call the flow from outside

# They run inside the script's own process, or in one of their own on a machine with a GPU.
MAY_IMPORT_TORCH = {
    "presim.composition.graph.compiled",
    "presim.composition.graph.export",
    "presim.composition.graph.libraries",
    "presim.models.export",
    "presim.serving.engines.sglang_engine",
    "presim.serving.engines.sglang_scheduler",
    "presim.serving.engines.vllm_engine",
    "presim.serving.engines.vllm_scheduler",
    "presim.serving.engines.vllm_steps",
    "presim.capture.runner",
    "presim.capture.observers",
    "presim.capture.distributed",
    "presim.capture.adapters",
    "presim.capture.script",
    "presim.capture.steps.observer",
    "presim.capture.device_values.triton",
    "presim.profile.bench",
    "presim.profile.tracer",
    "presim.profile.kernels",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, ast.Module]:
    """All modules of presim; the shim's build scripts belong to no package."""
    apart = {PACKAGE / "shim", PACKAGE / "frameworks" / "programs"}  # build scripts, and programs that are captured
    paths = (path for path in PACKAGE.rglob("*.py") if apart.isdisjoint(path.parents))
    return {module_name(path): ast.parse(path.read_text(), str(path)) for path in sorted(paths)}


def imported(tree: ast.Module) -> set[str]:
    """Full names that a module imports, those inside functions too, save those for type checkers only."""
    names: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        pending.extend(node.orelse if _for_types_only(node) else ast.iter_child_nodes(node))
    return names


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def within(name: str, places: set[str]) -> bool:
    return any(name == place or name.startswith(place + ".") for place in places)


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports_torch(module: str) -> bool:
    return any(within(name, {"torch", "torchgen"}) for name in IMPORTS[module])


IMPORTS = {module: imported(tree) for module, tree in modules().items()}


@pytest.mark.parametrize("module", [module for module in IMPORTS if part_of(module) not in CLIENTS])
def test_a_part_imports_only_what_lies_before_it(module: str) -> None:
    """The flow is trace, price, engine, analysis, report, with hardware beside it; nobody imports from the right."""
    part = part_of(module)
    allowed = EVERYWHERE | MAY_IMPORT[part] | {f"presim.{part}"}
    wrong = {name for name in IMPORTS[module] if within(name, {"presim"}) and not within(name, allowed)}
    assert not wrong, f"{module} imports {sorted(wrong)}; a part named {part!r} may import {sorted(allowed)}"


@pytest.mark.parametrize("module", [module for module in IMPORTS if not within(module, MAY_IMPORT_TORCH)])
def test_torch_is_imported_only_where_a_script_runs(module: str) -> None:
    """Launching, pricing, simulating and reporting start fast and run where torch cannot be imported."""
    assert not imports_torch(module)


def test_importing_a_client_brings_no_torch() -> None:
    """What holds for each module by itself holds for what they reach together, up to the runner."""
    reached, pending = set[str](), [name for name in IMPORTS if part_of(name) in CLIENTS]
    while pending:
        module = pending.pop()
        if module in reached:
            continue
        reached.add(module)
        pending += [known for known in IMPORTS if any(within(name, {known}) for name in IMPORTS[module])]
    assert not {module for module in reached if imports_torch(module)}


def test_third_party_imports_are_those_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in project["dependencies"]}
    optional = {re.split(r"[^\w-]", line)[0] for line in project["optional-dependencies"]["fit"]}
    optional |= {"optuna"}  # the extra search; it imports cmaes itself
    optional |= {"ray"}  # the extra ray
    optional |= {"scipy"}  # the extra search; budgets of activations are solved with it
    optional |= {"transformers"}  # in the process that takes a graph of one of its models
    optional |= {"vllm", "sglang"}  # in the process that runs its scheduler
    optional |= {"starlette", "uvicorn"}  # the extra view
    optional |= {"pytest"}  # in its plug-in, which it loads itself
    used = {name.split(".")[0] for names in IMPORTS.values() for name in names}
    used = {{"google": "protobuf"}.get(name, name) for name in used}
    assert used - set(sys.stdlib_module_names) - {"presim", "torch"} == declared | optional
