"""The registry of results: which verb writes each kind, how it is read, and how it is shown.

A file names its kind and version: ``schema`` is ``presim-NAME/VERSION``, or ``kind`` stands beside ``schema_version``.
Results of the last version are read, too: by `ResultKind.upgrades`, and those without a name by `ResultKind.fields`.
"""

from __future__ import annotations

import dataclasses
import importlib
import types
from collections.abc import Mapping
from typing import Any

_PART_FIELDS = "id name sources"


@dataclasses.dataclass(frozen=True)
class ResultKind:
    """One kind of result. Functions and types are named as ``module:name`` and imported at first use."""

    name: str
    verb: str  # that writes it
    version: int  # that this presim writes
    render: str  # the content as a renderable of rich, or as lines of text
    fields: str  # every result has them, and no result of another kind has them all
    struct: str = ""  # type of the content; empty: a dictionary
    problem: str = ""  # names a figure of the content that no prediction has; empty: none is looked for
    widest: int = 0  # columns of the report; 0: all of the terminal
    write: str = ""  # prints it, where that takes more than printing what ``render`` returns
    page: str = ""  # an HTML page of its own; empty: the page that any report has
    names_partial: bool = False  # its report says itself where the result is partial
    # Version -> function of its JSON to the next version; empty: it can be read as it is.
    upgrades: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def part(self, name: str) -> Any:
        """The function or type that one of the fields names."""
        return imported(getattr(self, name))


def imported(name: str) -> Any:
    """What ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


_UNNUMBERED = types.MappingProxyType({0: ""})  # the last presim wrote the same without a version


def _part_of_catalogue(name: str, struct: str, fields: str) -> ResultKind:
    return ResultKind(
        name,
        "presim hardware show --json",
        1,
        "presim.report.hardware:render_part",
        f"{_PART_FIELDS} {fields}",
        struct=struct,
        write="presim.report.hardware:write_part",
        upgrades=_UNNUMBERED,
    )


KINDS = (
    ResultKind(
        "run",
        "presim run, import, simulate or compose --json",
        2,
        "presim.report.terminal:render",
        "job ranks exit steps",
        struct="presim.result:Result",
        problem="presim.report.json:problem",
        widest=104,
        page="presim.report.html:render",
        names_partial=True,
        upgrades={1: "presim.report.json:upgrade_1"},
    ),
    ResultKind(
        "comparison",
        "presim compare --json",
        1,
        "presim.report.comparison:render",
        "results differences",
        struct="presim.result.comparison:Comparison",
        widest=104,
        page="presim.report.comparison:page",
    ),
    ResultKind(
        "explanation",
        "presim explain --json",
        1,
        "presim.report.explanation:render",
        "critical_path gains plans",
        struct="presim.result.explanation:Explanation",
        widest=104,
    ),
    ResultKind(
        "training",
        "presim training --json",
        1,
        "presim.report.training:render",
        "work_days spent_days curve",
        struct="presim.result.training:Projection",
        widest=104,
        page="presim.report.training:page",
    ),
    ResultKind(
        "gate",
        "presim gate --json",
        1,
        "presim.studies.gate.text:render",
        "passed jobs",
        struct="presim.studies.gate.budget_check:Gate",
    ),
    ResultKind(
        "search",
        "presim search --json",
        1,
        "presim.planner.answer.search_table:render_widest",
        "trials best varied",
        struct="presim.planner.study:Answer",
        write="presim.planner.answer.search_table:write",
        page="presim.planner.answer.search_page:render",
        names_partial=True,
    ),
    ResultKind(
        "search-matrix",
        "presim search --matrix --json",
        1,
        "presim.planner.answer.matrix_page:render",
        "clusters plans runs",
        struct="presim.planner.matrix:Matrix",
    ),
    ResultKind(
        "agreement",
        "presim compose --like --json",
        1,
        "presim.report.agreement:render",
        "counted figures differences",
        struct="presim.composition.capture_comparison:Agreement",
        upgrades=_UNNUMBERED,
    ),
    ResultKind(
        "serving",
        "presim serve --json",
        1,
        "presim.serving.answer.screen:screen",
        "deployment workload figures",
        struct="presim.result.serving:ServingResult",
        page="presim.serving.answer.serving_page:render",
    ),
    ResultKind(
        "rl",
        "presim rl --json",
        1,
        "presim.post_training.rl_text:render",
        "placement pools phases",
        struct="presim.post_training.rl_answer:RlAnswer",
        page="presim.post_training.rl_page:render",
    ),
    ResultKind(
        "prefill", "presim prefill --json", 1, "presim.serving.prompts.prefill_record:screen", "plan_of_a_rank batches"
    ),
    ResultKind(
        "deployments",
        "presim deploy --json",
        2,
        "presim.serving.deployments.report_lines:text",
        "judged pareto simulated",
        struct="presim.result.deployments:DeployResult",
        page="presim.serving.deployments.deployment_page:render",
        names_partial=True,
        upgrades={1: "presim.serving.deployments.deployment_record:upgrade_1"},
    ),
    ResultKind(
        "serving-calibration",
        "presim calibrate serving --out",
        1,
        "presim.serving.calibrate:text",
        "overheads measured before after",
    ),
    ResultKind(
        "calibration",
        "presim calibrate job --json",
        1,
        "presim.studies.calibrate.calibration_text:text",
        "changes step_time notes",
        struct="presim.studies.calibrate.calibration_text:CalibrationReport",
        upgrades=_UNNUMBERED,
    ),
    ResultKind(
        "network",
        "presim network --json",
        1,
        "presim.hardware.network.network_answer:text",
        "gpus vertices links",
        struct="presim.hardware.network.network_answer:NetworkAnswer",
        upgrades={0: "presim.hardware.network.network_answer:upgrade_0"},
    ),
    ResultKind(
        "trace-view",
        "presim trace --json",
        1,
        "presim.report.trace_view:render",
        "summary entries",
        struct="presim.report.trace_view:TraceView",
        widest=120,
        upgrades=_UNNUMBERED,
    ),
    ResultKind(
        "graph-summary",
        "presim graph show --json",
        1,
        "presim.composition.graph.graph_summary:render",
        "modules",
        struct="presim.composition.graph.graph_summary:GraphSummary",
        upgrades=_UNNUMBERED,
    ),
    ResultKind(
        "hardware",
        "presim hardware list --json",
        1,
        "presim.report.hardware:render_catalogue",
        "gpus nodes fabrics",
        struct="presim.report.hardware:Catalogue",
        write="presim.report.hardware:write_catalogue",
        upgrades=_UNNUMBERED,
    ),
    _part_of_catalogue("gpu", "presim.hardware.gpu_schema:Gpu", "sm_count compute_major"),
    _part_of_catalogue("node", "presim.hardware.cluster:Node", "interconnect default_fabric"),
    _part_of_catalogue("fabric", "presim.hardware.cluster:Fabric", "port_bytes_per_s latency_ns"),
    ResultKind(
        "cluster",
        "presim hardware show --json",
        1,
        "presim.report.hardware:cluster_text",
        "gpu node fabric gpus_per_node",
        upgrades=_UNNUMBERED,
    ),
    ResultKind(
        "models",
        "presim models --json",
        1,
        "presim.verbs.list_models:render",
        "models",
        struct="presim.verbs.list_models:ModelList",
        write="presim.verbs.list_models:write",
    ),
    ResultKind(
        "lines",
        "presim fit, profile, graph take, network explain or validate --oracle --json",
        1,
        "presim.report.line_report:render",
        "verb lines figures",
        struct="presim.report.line_report:LineReport",
        page="presim.report.line_report:page",
    ),
    ResultKind(
        "validation",
        "presim validate --out",
        1,
        "presim.studies.validation.printed:of_table",
        "path rows",
        page="presim.studies.validation.validation_page:page",
    ),
    ResultKind(
        "doctor",
        "presim doctor --json",
        1,
        "presim.capture.setup.doctor:text",
        "works checks",
        struct="presim.capture.setup.doctor:Examination",
        upgrades=_UNNUMBERED,
    ),
)
