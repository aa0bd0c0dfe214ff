"""A collective that would take too long or too much memory is refused before it starts, with the estimate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from presim.cli import main
from presim.errors import InputError
from presim.hardware.network.exchange import KINDS, Exchange, run
from presim.hardware.network.network_effort import check, count_flows
from presim.hardware.network.open import open_network
from presim.hardware.network.topology import Topology


@pytest.fixture
def network(tmp_path: Path) -> Topology:
    return open_network(str(cluster(tmp_path, nodes=4)))


def cluster(folder: Path, nodes: int) -> Path:
    path = folder / "c.toml"
    path.write_text(f'gpu = "h100-sxm"\nnodes = {nodes}\n\n[network]\nleaf_nodes = 2\noversubscription = 1.0\n')
    return path


@pytest.mark.parametrize("ranks", [tuple(range(32)), tuple(range(8, 24)), (0, 1, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_exchange_has_more_flows_than_are_counted(network: Topology, kind: str, ranks: tuple[int, ...]) -> None:
    exchange = Exchange(kind, 1 << 20, ranks)
    flows = len(run(network, [exchange], "link").flows.bytes)
    assert 0 < flows <= count_flows(exchange, network)
    if kind in ("all_to_all", "dispatch") and len(ranks) > 3:
        assert flows == count_flows(exchange, network)


def test_the_refusal_has_the_estimate_and_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cluster(tmp_path, nodes=4096)
    assert main.run(["network", str(path), "--collective", "all_to_all"]) == 2
    assert capsys.readouterr().err == (
        "presim: 1,073,709,056 flows of all_to_all between 32,768 GPUs would take about 36 minutes and 400 GiB, more "
        "than the budget of 10 minutes and 8 GiB: use at most 21,000,000, or name fewer ranks with --ranks, or raise "
        "--budget, e.g. --budget 2h,64GiB\n"
    )


def test_a_larger_budget_allows_more(network: Topology, tmp_path: Path) -> None:
    exchange = Exchange("all_to_all", 1 << 20, tuple(np.arange(32)))
    check(network, [exchange], "flow")
    path = str(cluster(tmp_path, nodes=4))
    assert main.run(["network", path, "--collective", "all_to_all", "--budget", "0.1MiB"]) == 2
    assert main.run(["network", path, "--collective", "all_to_all", "--budget", "1s,1MiB"]) == 0
    with pytest.raises(InputError):
        check(network, [exchange] * 30_000, "flow")
