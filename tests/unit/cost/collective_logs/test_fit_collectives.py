"""Fitting the constants of the model to measurements."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim import hardware
from presim.cost.collective_logs.fit_collectives import LINK, fit
from presim.cost.collectives.collective_constants import link_constants
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measurements import FEWEST, CollectiveMeasurement
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective

RANKS = tuple(range(8))


def measured(cluster: Cluster, counts: tuple[int, ...] = (2, 4, 8)) -> list[CollectiveMeasurement]:
    """What a machine would measure that behaves like the model with this cluster's constants."""
    points = []
    for count in counts:
        for power in range(10, 32):
            work = Collective(kind="all_gather", bytes=1 << power, dtype="float32", group=0)
            price = Hierarchical().alone(work, Group("g", RANKS[:count], count), cluster)
            points.append(CollectiveMeasurement(work, RANKS[:count], cluster, price.duration_ns * 1e-9, "log"))
    return points


def test_a_fit_finds_a_machine_s_own_constants() -> None:
    """Links a third slower and latency twice as long as the catalogue says: the held-out half is met to 2 %."""
    plain = hardware.choose_cluster(gpu="h100-sxm", nodes=1)
    usual = link_constants("hopper", nvlink=True)
    own = {"base_us": [2 * one for one in usual.base_us], "efficiency": [one / 1.5 for one in usual.efficiency]}
    truth = measured(msgspec.structs.replace(plain, collectives={"link": own}))
    fitted = fit([dataclasses.replace(point, cluster=plain) for point in truth], link=LINK)
    assert fitted.held_out_median < 0.02
    assert fitted.link.efficiency[2] == pytest.approx(usual.efficiency[2] / 1.5, rel=0.03)
    assert fitted.points == len(truth) // 2


def test_what_no_point_knows_anything_of_stays() -> None:
    plain = hardware.choose_cluster(gpu="h100-sxm", nodes=1)
    fitted = fit(measured(plain), link=LINK)
    usual = link_constants("hopper", nvlink=True)
    assert fitted.link.direct_us == usual.direct_us
    assert fitted.link == usual


def test_too_few_points_are_refused() -> None:
    plain = hardware.choose_cluster(gpu="h100-sxm", nodes=1)
    with pytest.raises(
        InputError, match=rf"^11 measurements are too few for a fit; give logs with at least {FEWEST} sizes"
    ):
        fit(measured(plain)[:11], link=LINK)
