"""Result fields about origins of prices, limits, and device values that were read back."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc


class Share(msgspec.Struct, frozen=True):
    """How much of the step time rests on one origin, and how sure it is."""

    name: Annotated[
        str,
        doc(
            "measured, interpolated, learned, analytic, guessed (no estimator covers it), or host (captured CPU time)."
        ),
    ]
    estimators: Annotated[list[str], doc("Names of the estimators.")]
    seconds: Annotated[float, doc("Seconds of the step time.")]
    share: Annotated[float, doc("Share of the step time.")]
    uncertainty: Annotated[float, doc("Mean relative uncertainty (80 %) of these seconds.")]
    longer: Annotated[float, doc("The same upwards, where they may be longer by more than shorter; else 0.")] = 0.0


class Provenance(msgspec.Struct, frozen=True):
    """Where the step time's numbers come from."""

    by_origin: Annotated[list[Share], doc("Share of the step time by origin of its prices.")]
    method: Annotated[str, doc("How the uncertainties were combined.")]


class Limit(msgspec.Struct, frozen=True):
    """Something that bounds the step time, and what would help."""

    name: Annotated[str, doc("compute, memory_bandwidth, communication, host, copies, recomputation or latency.")]
    seconds: Annotated[float, doc("Seconds of the step with this limit.")]
    share: Annotated[float, doc("Share of the step time.")]
    statement: Annotated[str, doc("The finding, with its number.")]
    advice: Annotated[str, doc("Advice, with its largest possible gain.")]


class PolicyUse(msgspec.Struct, frozen=True):
    """A policy whose values the captured ranks read."""

    policy: Annotated[str, doc("Key of --values; zero and finite have none.")]
    value: Annotated[str, doc("As chosen, or presim's default; empty where the policy has no setting.")]
    times: Annotated[int, doc("Reads of the rank that reads most, summed over the lines.")]
    lines: Annotated[list[str], doc("Lines of the script that read it, the most frequent first.")]


class ReadBack(msgspec.Struct, frozen=True):
    """A place where captured ranks read values of the device."""

    line: Annotated[str, doc("Line of the script, ``file.py:12``: the innermost one outside Python and its packages.")]
    what: Annotated[str, doc("How: item, copy to host, or the operator that read (nonzero, unique, …).")]
    answer: Annotated[
        str,
        doc(
            "Origin of the value: computed, or a policy: loss, gradient norm, finite, routing, sampling, number, zero."
        ),
    ]
    times: Annotated[int, doc("Number of reads; the largest number if ranks differ.")]
    ranks: Annotated[str, doc("The captured ranks that read it, such as ``0-3, 8``.")]
