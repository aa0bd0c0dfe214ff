"""Result fields about origins of prices, limits, and device values that were read back."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.field_docs import doc


class Share(msgspec.Struct, frozen=True):
    """How much of the step time rests on one origin, and how sure it is."""

    name: Annotated[
        str,
        doc(
            "measured, interpolated, learned, analytic, guessed (no estimator covers it), or host (captured CPU time)."
        ),
    ]
    estimators: Annotated[list[str], doc("Names of the estimators that answered.")]
    seconds: Annotated[float, doc("Seconds of the step time.")]
    share: Annotated[float, doc("Share of the step time.")]
    uncertainty: Annotated[float, doc("Mean relative uncertainty (80 %) of these seconds.")]


class Provenance(msgspec.Struct, frozen=True):
    """Where the step time's numbers come from."""

    by_origin: Annotated[list[Share], doc("Share of the step time by origin of its prices.")]
    method: Annotated[str, doc("How the uncertainties were combined.")]


class Limit(msgspec.Struct, frozen=True):
    """Something that bounds the step time, and what would help."""

    name: Annotated[str, doc("compute, memory_bandwidth, communication, host, copies, recomputation or latency.")]
    seconds: Annotated[float, doc("Seconds of the step it accounts for.")]
    share: Annotated[float, doc("Share of the step time.")]
    statement: Annotated[str, doc("What was found, with its number.")]
    advice: Annotated[str, doc("What would help, and by how much at most.")]


class ReadBack(msgspec.Struct, frozen=True):
    """A place where captured ranks read values of the device."""

    line: Annotated[str, doc("Where: ``file.py:12``, the innermost line that is neither Python's nor a package's.")]
    what: Annotated[str, doc("How: item, copy to host, or the operator that read (nonzero, unique, …).")]
    answer: Annotated[
        str,
        doc("Who answered: computed, or a policy: loss, gradient norm, finite, routing, sampling, number, zero."),
    ]
    times: Annotated[int, doc("How often; where ranks differ, the one of them that read most often.")]
    ranks: Annotated[str, doc("The captured ranks that did, each for those it stands for: ``0-3, 8``.")]
