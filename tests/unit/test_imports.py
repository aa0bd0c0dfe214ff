"""Imports go one way, along the data flow; torch stays where a script runs; what is imported is declared."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

from support.source_trees import by_room, rooms, source_trees

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "presim"

# Known everywhere; among themselves they know only what stands here.
EVERYWHERE = {"presim.errors", "presim.system", "presim.units"}
# Part -> what it may import of presim besides itself and these, in the order of the data flow. A part within a room has
# a line of its own where it may know less than the room.
MAY_IMPORT = {
    "errors": set(),
    "units": {"presim.errors"},
    "system.files": {"presim.errors", "presim.units.quantities"},
    "system": {"presim.errors"},
    "trace": set(),
    "hardware": set(),
    "shim": set(),
    "result": set(),
    "capture": {"presim.trace", "presim.hardware"},
    # A model's graph is taken in a process of its own, with the emulated libraries where PyTorch lacks its own.
    # What an operator's work is, is asked of the reading of captures itself.
    "composition.graph": {"presim.trace", "presim.hardware", "presim.capture.setup", "presim.capture.reading"},
    "composition.passes": {
        "presim.composition.graph",
        *(f"presim.trace.{name}" for name in ("dtypes", "group_sizes", "even_routing", "routing_policy")),
    },
    # Blocks of an extended trace are given addresses by the allocator's own rules.
    "composition.replan": {"presim.trace", "presim.composition.allocator"},
    # Programs of frameworks for a plan: the plan and what a capture depends on; the programs import torch.
    "composition.frameworks": {
        "presim.composition.plan",
        "presim.composition.graph.take",
        "presim.hardware",
        "presim.capture.setup",
        "presim.composition.launch_files",
        "presim.composition.launch_scripts.megatron_plan",  # names of Megatron-LM's options
        "presim.composition.replan.stage_sources",  # which stages answer for others
    },
    # Files that start a plan on frameworks: a client of the plan alone; nothing is composed for them.
    "composition.launch_files": {
        "presim.composition.plan",
        "presim.composition.stage_split",
        "presim.composition.graph.take",
        "presim.hardware",
    },
    # Launch scripts of others: what a plan is made of, and the configs that it is compared with.
    "composition.launch_scripts": {"presim.composition.graph.take", "presim.composition.launch_configs"},
    # Configurations of other trainers: the same.
    "composition.launch_configs": {"presim.composition.graph.take"},
    "composition": {"presim.trace", "presim.hardware"},
    # What a model's own code says of its layers is asked in a process of its own, as its graph is.
    "composition.models": {
        "presim.composition.graph.take",
        "presim.composition.graph.export.vllm_models",
        "presim.capture.setup",
    },
    "cost": {"presim.trace", "presim.hardware"},
    # What a capture would say of a call is asked of the reading itself.
    "cost.profile": {"presim.trace", "presim.hardware", "presim.cost.measured", "presim.capture.reading"},
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
    },
    # The simulation of what is being captured: a client of both ends, started by the launcher.
    "evaluation.live": {"presim.trace", "presim.hardware", "presim.capture", "presim.cost", "presim.engine"},
    "evaluation": {
        *(f"presim.{part}" for part in ("trace", "hardware", "cost", "engine", "analysis", "result")),
        "presim.composition",
    },
    "report": {
        "presim.trace",
        "presim.cost.price",
        "presim.hardware",
        "presim.engine.timeline",
        "presim.analysis",
        "presim.result",
    },
    "sources": {
        *(f"presim.{part}" for part in ("trace", "hardware", "engine.simulation_options", "evaluation.options")),
        "presim.capture.reading",
        "presim.report.chakra",  # the format that it writes
    },
    # Deployments of models: a client of prices and hardware, with a loop of its own over requests.
    "serving": {
        "presim.trace",
        "presim.hardware",
        "presim.cost",
        "presim.composition.models",
        "presim.composition.graph.take",
        *(f"presim.report.{part}" for part in ("bars", "blocks", "drawings", "sections")),  # of its pages
        "presim.result.deployments",  # what its answers are
        "presim.result.serving",
    },
    # Steps of reinforcement learning: of serving and training together.
    "post_training": {
        *(f"presim.{part}" for part in ("trace", "hardware", "composition", "cost", "engine.timeline")),
        *(f"presim.{part}" for part in ("result", "evaluation", "serving", "report.rendering", "report.palette")),
    },
    "verbs": {
        *(f"presim.{part}" for part in ("trace", "hardware", "capture", "composition", "cost", "engine")),
        *(f"presim.{part}" for part in ("analysis", "result", "evaluation", "sources", "serving", "post_training")),
    },
    "planner": {
        *(
            f"presim.{part}"
            for part in ("trace", "hardware", "composition", "cost", "engine.simulation_options", "evaluation")
        ),
        "presim.capture.launchers.launch_command",
        "presim.report.rendering",
        "presim.report.screen",
        "presim.verbs.run",
        "presim.verbs.compose_framework",
        "presim.verbs.target",
    },
    "studies.gate": {"presim.result", "presim.report", "presim.capture.ctrl_c"},
    "studies.projection": {"presim.hardware", "presim.result"},
    "studies.explain": {
        *(f"presim.{part}" for part in ("hardware", "composition.plan", "analysis", "result", "evaluation", "planner")),
    },
    "studies.calibrate": {
        *(f"presim.{part}" for part in ("trace", "hardware", "cost", "engine", "evaluation", "sources", "verbs")),
    },
    "studies": {
        *(
            f"presim.{part}"
            for part in ("trace", "hardware", "composition", "analysis", "result", "evaluation", "report")
        ),
        "presim.verbs",
    },
    # Reads and shows what any verb wrote.
    "studies.saved_results": {
        "presim.composition.graph",
        "presim.report",
        "presim.result",
        "presim.studies.saved_jobs",
    },
    "studies.validation": {
        *(f"presim.{part}" for part in ("trace", "hardware", "capture", "cost", "engine", "analysis", "result")),
        *(f"presim.{part}" for part in ("evaluation", "composition.models", "serving", "sources", "verbs", "report")),
    },
    "app.view": {
        *(f"presim.{part}" for part in ("trace", "cost", "engine", "analysis", "result", "evaluation", "report")),
        *(f"presim.{part}" for part in ("hardware", "planner", "studies.saved_results")),
    },
    # Asks by the verbs' own options, and shows what they answer.
    "app": {
        *(
            f"presim.{part}"
            for part in ("trace", "hardware", "composition", "serving.model_lookup", "result", "planner")
        ),
        *(f"presim.{part}" for part in ("report", "cli", "evaluation", "verbs.simulate")),
        "presim.verbs.prepare",
        "presim.post_training.rl_answer",
        "presim.serving.prompts.prefill_record",
        "presim.studies.gate.budget_check",
        "presim.studies.saved_jobs",
        "presim.studies.saved_results",
    },
    "cli": {"presim"},
    "__init__": {"presim"},
    "__main__": {"presim.cli"},
}

# They run inside the script's own process, or in one of their own on a machine with a GPU.
MAY_IMPORT_TORCH = {
    "presim.composition.graph.fused_functions",
    "presim.composition.graph.export",
    "presim.composition.graph.libraries",
    "presim.composition.models.export",
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
    "presim.cost.profile.bench",
    "presim.cost.profile.tracer",
    "presim.cost.profile.kernels",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, ast.Module]:
    """All modules of presim; the shim's build scripts belong to no package."""
    apart = {
        PACKAGE / "shim",
        PACKAGE / "composition" / "frameworks" / "programs",
    }  # build scripts, and programs that are captured
    return {module_name(path): tree for path, tree in source_trees().items() if apart.isdisjoint(path.parents)}


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
    return any(within(name, {"torch", "torchgen"}) for name in all_imports()[module])


@functools.cache
def all_imports() -> dict[str, set[str]]:
    """Full names that each module of presim imports."""
    return {module: imported(tree) for module, tree in modules().items()}


def allow_list_of(module: str) -> str:
    """The key of `MAY_IMPORT` for a module: the innermost part that has one."""
    path = module.removeprefix("presim.")
    while path not in MAY_IMPORT:
        path = path.rpartition(".")[0] or part_of(module)
    return path


def modules_imported_by(module: str) -> set[str]:
    """The modules of presim that a module imports, without itself and the top of the package."""
    reached = set()
    for name in all_imports()[module]:
        while name and name not in all_imports():
            name = name.rpartition(".")[0]
        reached.add(name)
    return reached - {"", "presim", module}


@pytest.mark.parametrize("room", rooms())
def test_a_part_imports_only_what_lies_before_it(room: str) -> None:
    """The flow is trace, price, engine, analysis, report, with hardware beside it; nobody imports from the right."""
    for module in by_room(all_imports()).get(room, []):
        part = allow_list_of(module)
        own = set() if part == "__init__" else {f"presim.{part}"}
        allowed = MAY_IMPORT[part] | own | (set() if within(f"presim.{part}", EVERYWHERE) else EVERYWHERE)
        names = all_imports()[module] - {"presim"}  # for its version
        wrong = {name for name in names if within(name, {"presim"}) and not within(name, allowed)}
        assert not wrong, f"{module} imports {sorted(wrong)}; a part named {part!r} may import {sorted(allowed)}"


def test_no_modules_import_each_other() -> None:
    graphlib.TopologicalSorter(
        {module: modules_imported_by(module) for module in all_imports()}
    ).prepare()  # CycleError


def test_no_rooms_import_each_other() -> None:
    """But for the commands that open pages: the app asks the command line for its options."""
    rooms: dict[str, set[str]] = {part_of(module): set() for module in all_imports()}
    for module in all_imports().keys() - {"presim.cli.app", "presim.cli.view"}:
        rooms[part_of(module)] |= {part_of(other) for other in modules_imported_by(module)} - {part_of(module)}
    graphlib.TopologicalSorter(rooms).prepare()  # CycleError


def test_torch_is_imported_only_where_a_script_runs() -> None:
    """Launching, pricing, simulating and reporting start fast and run where torch cannot be imported."""
    assert not [module for module in all_imports() if imports_torch(module) and not within(module, MAY_IMPORT_TORCH)]


def test_importing_a_client_brings_no_torch() -> None:
    """What holds for each module by itself holds for what they reach together, up to the runner."""
    reached, pending = set[str](), [name for name in all_imports() if part_of(name) in ("app", "cli")]
    while pending:
        module = pending.pop()
        if module in reached:
            continue
        reached.add(module)
        names = {".".join(name.split(".")[:depth]) for name in all_imports()[module] for depth in range(1, 9)}
        pending += names & all_imports().keys()
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
    used = {name.split(".")[0] for names in all_imports().values() for name in names}
    used = {{"google": "protobuf"}.get(name, name) for name in used}
    assert used - set(sys.stdlib_module_names) - {"presim", "torch"} == declared | optional
