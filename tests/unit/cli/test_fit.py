"""The verb `fit` with logs of nccl-tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim import hardware
from presim.cli import main
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.models import collective_models
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective
from support import nccl_logs


def slow() -> Cluster:
    """A cluster whose links and ports are slower than those of the catalogue."""
    plain = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
    own = {"link": {"efficiency": [0.02, 0.3, 0.6]}, "fabric": {"efficiency": [0.01, 0.15, 0.5]}}
    return Cluster(plain.gpu, plain.node, plain.fabric, 2, 8, {}, own)


def test_logs_become_a_cluster_s_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [str(nccl_logs.write(tmp_path, slow(), "all_gather", ranks, nodes)) for ranks, nodes in ((8, 1), (16, 2))]
    out = tmp_path / "cluster.toml"
    assert main.run(["fit", "--nccl-tests", *logs, "--out", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "all_gather-8.log: all_gather of 8 ranks on 1 node, 28 sizes"
    assert said[1] == "all_gather-16.log: all_gather of 16 ranks on 2 nodes, 28 sizes"
    assert said[2].startswith("within a node: median error 0.")
    assert said[3].startswith("between nodes: median error ")

    fitted = hardware.choose_cluster(cluster=out)
    assert (fitted.gpu.id, fitted.nodes, fitted.gpus_per_node) == ("h100-sxm", 2, 8)
    table, model = collective_models(fitted)
    known, unknown = (Collective(kind, 3 << 20, "bfloat16", 0) for kind in ("all_gather", "reduce_scatter"))
    everyone = Group("all", tuple(range(16)), 16)
    truth = Hierarchical().price(known, everyone, slow())
    price = table.price(known, everyone, fitted)
    assert price is not None
    assert price.duration_ns == pytest.approx(truth.duration_ns, rel=0.05)
    assert table.price(unknown, everyone, fitted) is None
    price = model.price(unknown, everyone, fitted)
    assert price is not None
    assert price.duration_ns == pytest.approx(Hierarchical().price(unknown, everyone, slow()).duration_ns, rel=0.1)


def test_the_same_logs_give_the_same_file(tmp_path: Path) -> None:
    log = str(nccl_logs.write(tmp_path, slow(), "all_reduce", 8, 1))
    for name in ("one.toml", "two.toml"):
        assert main.run(["fit", "--nccl-tests", log, "--out", str(tmp_path / name), "--quiet"]) == 0
    assert (tmp_path / "one.toml").read_bytes() == (tmp_path / "two.toml").read_bytes()


def test_the_statistical_model_is_a_line_in_the_file(tmp_path: Path) -> None:
    log = str(nccl_logs.write(tmp_path, slow(), "all_reduce", 8, 1))
    out = tmp_path / "cluster.toml"
    assert main.run(["fit", "--nccl-tests", log, "--out", str(out), "--quiet"]) == 0
    out.write_text(out.read_text().replace('model = "white-box"', 'model = "statistical"'))
    models = collective_models(hardware.choose_cluster(cluster=out))
    assert [model.name for model in models] == ["measured/collectives", "learned/statistical", "analytic/hierarchical"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (slice(0, 18), "7 measurements within a node and 0 between nodes are too few to fit to: give logs with 12"),
        (slice(0, 0), "has no lines of nccl-tests"),
    ],
)
def test_bad_logs_are_one_sentence_and_leave_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: slice, message: str
) -> None:
    log = nccl_logs.write(tmp_path, slow(), "all_reduce", 8, 1)
    log.write_text("\n".join(log.read_text().splitlines()[lines]))
    out = tmp_path / "cluster.toml"
    assert main.run(["fit", "--nccl-tests", str(log), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.glob("*.toml*")) == []
