"""A run of Megatron-Bridge with a few stages of a pipeline, where these show what all do."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from presim.composition.frameworks.megatron import FrameworkRun, fewest_repeating, training_overrides
from presim.composition.frameworks.megatron_recipes import PLAN_FIELDS
from presim.composition.frameworks.programs.stage_layout import LAST, chunks_text, divided_layers
from presim.composition.frameworks.uneven_stages import FIELDS, Division, uneven_fields, uneven_layers
from presim.composition.graph.take import config_file
from presim.composition.launch_files.shapes import read_config
from presim.composition.plan import Plan
from presim.composition.replan.stage_sources import Ends, captured_stages, source_stages

_INTERLEAVED_GROUPS = (2, 3)  # of a micro-batch for each stage, in the first and the last step, as the latter needs
_COUNTED_ENDS = 2  # embedding and output layer, which count as layers where layers alone do not divide
_DIVISIONS = ("layout", "mtp", "model.num_layers")  # parts of fields that give stages layers of their own
_FIRST_DENSE, _PREDICTED = "first_k_dense_replace", "num_nextn_predict_layers"
_OTHER_KINDS = "use_sliding_window"  # in some layers, by rules of each model

Chunks: TypeAlias = Sequence[Sequence[range]]  # layers by stage and chunk of it


@dataclasses.dataclass(frozen=True)
class _FewStages:
    """Stages that show what all do."""

    ends: Ends
    fields: tuple[str, ...] = ()  # of Bridge's configuration: the number of layers, where all are alike
    options: tuple[str, ...] = ()  # of presim's program: the layers of each chunk, where they are not

    @property
    def number(self) -> int:
        return captured_stages(self.ends)


def run_of_few_stages(run: FrameworkRun, model: str, plan: Plan, world_size: int) -> FrameworkRun | None:
    """The run with a few stages that are like those of its plan; None: all stages have to be captured.

    Stages between the first and the last ones have to hold as many layers of the same kinds. They run 1F1B or the
    interleaved schedule.
    """
    config = config_file(model)
    few = None if config is None else _few_stages(read_config(config), plan, world_size, run.arguments)
    if few is None:
        return None
    short_plan = msgspec.structs.replace(plan, pipeline=few.number)
    samples = plan.micro_batch * plan.data(world_size)
    is_interleaved = plan.virtual > 1
    first, captured = (few.number * groups if is_interleaved else 0 for groups in _INTERLEAVED_GROUPS)
    captured = captured or min(run.step_micro_batches, fewest_repeating(short_plan))
    replaced = {
        f"{PLAN_FIELDS['pipeline']}={plan.pipeline}",
        *training_overrides(plan, run.captured_micro_batches, samples),
    }
    uneven = [f"{field}={value}" for field, value in uneven_fields(run.arguments).items()]
    source, *arguments = (argument for argument in run.arguments if argument not in {*replaced, *uneven})
    added = (
        f"{PLAN_FIELDS['pipeline']}={few.number}",
        *few.fields,
        *training_overrides(short_plan, captured, samples, first=first),
    )
    return dataclasses.replace(
        run,
        arguments=(source, *added, *arguments, *few.options),
        captured_micro_batches=captured,
        captured_stages=few.number,
        captured_ends=few.ends,
    )


def _few_stages(config: Mapping[str, Any], plan: Plan, world_size: int, arguments: Sequence[str]) -> _FewStages | None:
    """Stages that are like those of a plan; None: no few of them are."""
    kinds = _layer_kinds(config, arguments)
    micro_batches = plan.micro_batches(world_size)
    if kinds is None or micro_batches < plan.pipeline * (_INTERLEAVED_GROUPS[0] if plan.virtual > 1 else 1):
        return None
    layers, chunks = len(kinds), plan.pipeline * plan.virtual
    if uneven := uneven_fields(arguments):
        divided = uneven_layers(layers, plan, uneven, config.get(_PREDICTED) or 0)
        return None if divided is None else _stages_of_kinds(kinds, plan, divided)
    is_equal = len(set(kinds)) == 1 and not config.get(_PREDICTED)
    further_layers = 0 if layers % chunks == 0 else _COUNTED_ENDS
    is_divided = (layers + further_layers) % chunks == 0
    if is_equal and is_divided and (not further_layers or layers >= 2 * chunks - _COUNTED_ENDS):
        ends = _ends([0] * plan.pipeline, plan.virtual > 1)
        if ends is None:
            return None
        few_layers = (layers + further_layers) // plan.pipeline * captured_stages(ends) - further_layers
        return _FewStages(ends, (f"model.num_layers={few_layers}",))
    if is_divided and further_layers:
        return None  # the first and the last stage have fewer layers, and these are of several kinds
    return _stages_of_kinds(kinds, plan, Division(divided_layers(layers, chunks)))


def _stages_of_kinds(kinds: Sequence[Hashable], plan: Plan, division: Division) -> _FewStages | None:
    """Stages whose layers are of several kinds, or not as many in all chunks; None: no few of them show all."""
    numbers = [range(stage, len(division.chunks), plan.pipeline) for stage in range(plan.pipeline)]
    contents = [[_contents(kinds, division, number) for number in of_stage] for of_stage in numbers]
    ends = _ends(contents, plan.virtual > 1)
    if ends is None or not _has_chunks_alike(contents, ends):
        return None
    chunk_numbers = [numbers[stage] for stage in source_stages(ends, captured_stages(ends), plan.pipeline)]
    in_order = [of_stage[turn] for turn in range(plan.virtual) for of_stage in chunk_numbers]
    kept_kinds = [kinds[layer] for number in in_order for layer in division.chunks[number]]
    if kept_kinds != list(kinds[: len(kept_kinds)]):  # kinds may follow from the number of a layer
        return None
    predicting = LAST if division.predicting == LAST else in_order.index(division.predicting)
    text = chunks_text([division.chunks[number] for number in in_order], predicting)
    return _FewStages(ends, options=("--chunks", text))


def _contents(kinds: Sequence[Hashable], division: Division, number: int) -> list[Hashable]:
    """The kinds of a chunk's layers, with what predicts further tokens as one, if it is not in the last chunk."""
    predicts = ["predicts"] if number == division.predicting else []
    return [*(kinds[layer] for layer in division.chunks[number]), *predicts]


def _has_chunks_alike(contents: Sequence[Sequence[object]], ends: Ends) -> bool:
    """Whether all chunks of a stage hold the same, but for the first of the first stages and the last of the last."""
    head, tail = ends
    for stage, of_stage in enumerate(contents):
        begin, end = int(stage < head), len(of_stage) - int(stage >= len(contents) - tail)
        if any(chunk != of_stage[begin] for chunk in of_stage[begin:end]):
            return False
    return True


def _ends(stages: Sequence[object], is_interleaved: bool) -> Ends | None:
    """How many of the first and of the last stages are not like those between.

    None: those between differ, or are too few to save a capture.

    Interleaved stages of even and of odd number differ, so that the captured number is even where that of all is.
    """
    like = [stage == stages[len(stages) // 2] for stage in stages]
    head, tail = max(like.index(True), 1), max(like[::-1].index(True), 1)
    if not all(like[head : len(stages) - tail]):
        return None
    if is_interleaved and (len(stages) - head - tail) % 2:
        tail += 1
    return (head, tail) if captured_stages((head, tail)) < len(stages) else None


def _layer_kinds(config: Mapping[str, Any], arguments: Sequence[str]) -> list[Hashable] | None:
    """What kind each layer is of; None: it is not known, or the user divides layers in another way."""
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or config.get(_OTHER_KINDS):
        return None
    fields = [argument.partition("=")[0] for argument in arguments]
    if any(division in field for field in fields for division in _DIVISIONS if field not in FIELDS):
        return None
    lists = [list(map(str, value)) for value in config.values() if isinstance(value, list) and len(value) == layers]
    num_dense = config.get(_FIRST_DENSE) or 0
    return [(layer < num_dense, *(values[layer] for values in lists)) for layer in range(layers)]


def equal_layers(config: Mapping[str, Any], arguments: Sequence[str]) -> int | None:
    """The number of layers, which are of one kind; None: they are not."""
    kinds = _layer_kinds(config, arguments)
    if kinds is None or len(set(kinds)) > 1 or config.get(_PREDICTED) or uneven_fields(arguments):
        return None
    return len(kinds)
