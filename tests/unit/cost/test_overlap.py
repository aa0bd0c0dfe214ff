"""How much two pieces of work slow each other."""

from __future__ import annotations

import pytest

from presim.cost import overlap
from presim.cost.overlap import NOTHING, Demand, added_time, table
from presim.errors import InputError
from presim.trace.job import Job


def test_arithmetic_has_the_sms_that_are_left() -> None:
    """A quarter of the SMs held leaves three quarters: a third more time."""
    assert added_time(Demand(arithmetic=1.0), Demand(channels=0.25)) == pytest.approx(1 / 3)
    assert added_time(Demand(arithmetic=0.5), Demand(channels=0.25)) == pytest.approx(1 / 6)
    assert added_time(Demand(channels=0.25), Demand(arithmetic=1.0)) == 0


def test_bandwidth_is_shared_in_proportion_where_it_does_not_suffice() -> None:
    large, small = Demand(memory=1.0), Demand(memory=0.25)
    assert added_time(large, small) == added_time(small, large) == 0.25
    assert added_time(small, Demand(memory=0.75)) == 0


def test_two_collectives_on_one_wire_take_twice_as_long() -> None:
    assert added_time(Demand(port_out=1.0, port_in=1.0), Demand(port_out=1.0, port_in=1.0)) == 1.0


def test_opposite_directions_and_other_wires_do_not_meet() -> None:
    assert added_time(Demand(link_out=1.0), Demand(link_in=1.0)) == 0
    assert added_time(Demand(link_out=1.0), Demand(port_out=1.0)) == 0


def test_the_scarcest_resource_decides() -> None:
    one = Demand(memory=0.9, link_out=1.0)
    assert added_time(one, Demand(memory=0.2, link_out=0.5)) == 0.5


def test_work_that_asks_for_nothing_is_not_slowed() -> None:
    assert table([NOTHING, Demand(channels=1.0, memory=1.0)])[0] == [0.0, 0.0]


COLLECTIVE = Demand(channels=0.2, memory=0.25, link_out=0.5, link_in=0.5)
KERNEL = Demand(arithmetic=1.0, memory=0.6)


@pytest.mark.parametrize("text", ["analytic", "bandwidth", "learned", "ratio=1.3"])
def test_models_differ_in_kernels_beside_communication_only(text: str) -> None:
    """Other pairs keep the analytic rule, and small kernels are neither slowed nor slow others."""
    demands = [overlap.NOTHING, KERNEL, COLLECTIVE, Demand(memory=0.9)]
    analytic, chosen = overlap.table(demands), overlap.table(demands, overlap.model_of(text))
    for row, work in enumerate(demands):
        for column, concurrent in enumerate(demands):
            if work in (KERNEL, demands[3]) and concurrent == COLLECTIVE:
                assert chosen[row][column] >= 0
            else:
                assert chosen[row][column] == analytic[row][column]
    assert overlap.described(overlap.model_of(text)) == text


def test_a_ratio_is_the_step_of_two_streams_in_closed_form() -> None:
    """A product under a collective that is longer takes X times its price."""
    from presim.engine.simulation_options import Options
    from presim.evaluation.evaluate_traces import evaluate
    from presim.hardware import choose_cluster
    from presim.trace.builder import TraceBuilder
    from presim.trace.schema import Group, Kind, Manifest, Phase
    from presim.trace.signatures import Collective, Gemm

    groups = (Group("dp", (0, 1), 2),)
    build = TraceBuilder(Manifest(2, 0, "h100-sxm", 2, "t.py", groups))
    build.work(Collective("all_reduce", 8 << 30, "bfloat16", 0), stream=1, phase=Phase.BACKWARD)
    build.work(Gemm(8192, 8192, 8192, 1, "bfloat16"), host_ns=100_000, phase=Phase.BACKWARD)
    build.step()
    options = Options.of(host_factor=1.0, overlap=overlap.model_of("ratio=1.5"))
    evaluation = evaluate(
        Job.of(build.trace(), stands_for={0: (1,)}), choose_cluster(gpu="h100-sxm", world_size=2), options
    )
    (product,) = evaluation.priced.trace.mask(Kind.WORK).nonzero()[0].tolist()
    lasted_ns = int(evaluation.timeline.end_ns[product] - evaluation.timeline.start_ns[product])
    assert lasted_ns == pytest.approx(1.5 * evaluation.priced.prices[1].duration_ns, rel=1e-3)
    assert "What if: kernels beside communication are slowed as ratio=1.5 says." in evaluation.result.notes


@pytest.mark.parametrize("text", ["ratio", "ratio=0.5", "ratio=nan", "ratio=9", "mlp", ""])
def test_a_model_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--overlap-model"):
        overlap.model_of(text)
