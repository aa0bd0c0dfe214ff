"""Map a space's knobs to plan fields, so that its points can be composed."""

from __future__ import annotations

from presim.planner.knobs import CLUSTER, Field, allowed, field_of, fields, short
from presim.planner.space import Space
from presim.planner.spaces.file import SpaceFile
from presim.planner.trials.trial import Value, format_value


def as_plans(space: SpaceFile, points: Space) -> tuple[Space, dict[str, Field], list[str]]:
    """The points that plans can express, the plan field of each knob, and notes on what was left out.

    A knob without a plan field keeps its first value and does not vary.
    """
    varied: dict[str, tuple[Value, ...]] = {}
    fixed, plan_fields, notes = dict(points.fixed), dict[str, Field](), list[str]()
    for name, values in points.varied.items():
        space_knob = space.knobs.get(name)
        field = Field(
            field_of(space_knob.field if space_knob and space_knob.field else name),
            space_knob.as_field if space_knob else {},
        )
        if name in CLUSTER:
            varied[name] = values
            continue
        if field.name not in fields():
            fixed[name] = values[0]
            notes += [f"Composed plans have no {name}: it stays {format_value(values[0])}."] if len(values) > 1 else []
            continue
        can = tuple(value for value in values if allowed(field.name, field.values.get(format_value(value), value)))
        lost = [format_value(value) for value in values if value not in can]
        notes += [f"Composed plans do not support {short(field.name)} {' or '.join(lost)}: left out."] if lost else []
        varied[name], plan_fields[name] = can, field
    return Space(varied, fixed), plan_fields, notes
