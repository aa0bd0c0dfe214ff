"""The verb `fit` with logs of nccl-tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from presim import hardware
from presim.cli import main
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.network_model import Transfer
from presim.cost.collectives.network_models import collective_models
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective
from support import nccl_logs


def slow() -> Cluster:
    """A cluster whose links and ports are slower than those of the catalogue."""
    plain = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
    own = {"link": {"efficiency": [0.2, 0.5, 0.6]}, "fabric": {"efficiency": [0.05, 0.4, 0.5]}}
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
    truth = Hierarchical().alone(known, everyone, slow())
    price = table.price([Transfer(known, everyone)], fitted)[0]
    assert price is not None
    assert price.duration_ns == pytest.approx(truth.duration_ns, rel=0.05)
    assert table.price([Transfer(unknown, everyone)], fitted) == [None]
    price = model.price([Transfer(unknown, everyone)], fitted)[0]
    assert price is not None
    assert price.duration_ns == pytest.approx(Hierarchical().alone(unknown, everyone, slow()).duration_ns, rel=0.1)


def test_parts_of_ones_own_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written where the files are, wherever the cluster's file goes."""
    monkeypatch.chdir(tmp_path)
    log = nccl_logs.write(tmp_path, slow(), "all_reduce", 8, 1)
    Path("gpu.toml").write_text('base = "h100-sxm"\nname = "Our H100"\n')
    Path("node.toml").write_text('base = "hgx-h100"\nnics = 4\n')
    command = [
        "fit",
        "--nccl-tests",
        str(log),
        "--out",
        "there/c.toml",
        "--gpu",
        "gpu.toml",
        "--node",
        "node.toml",
        "-q",
    ]
    Path("there").mkdir()
    assert main.run(command) == 0
    found = hardware.choose_cluster(cluster="there/c.toml")
    assert (found.gpu.name, found.node.nics) == ("Our H100", 4)
    assert found.collectives["measured"]


def test_one_thread_for_all_gpus_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = nccl_logs.write(tmp_path, slow(), "all_reduce", 8, 1)
    log.write_text("# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824 step: 2(factor)\n" + log.read_text())
    assert main.run(["fit", "--nccl-tests", str(log), "--out", str(tmp_path / "cluster.toml")]) == 0
    assert "28 sizes; one thread launched for 8 GPUs, which distorts" in capsys.readouterr().out


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
        (
            slice(0, 18),
            "7 measurements within a node and 0 between nodes are too few for a fit; give logs with at least 12",
        ),
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


def shortened(ranks: list[int]) -> str:
    """As PyTorch's profiler writes the ranks of a group: 29 and the last one of more than 30."""
    return str(ranks) if len(ranks) <= 30 else f"[{', '.join(map(str, ranks[:29]))}, ..., {ranks[-1]}]"


def traced(path: Path, calls: list[tuple[str, int, float]], ranks: int = 8) -> str:
    """A trace of PyTorch's profiler with these calls (name, elements, us) among some ranks."""
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}
    args = {"dtype": "Float", "Group size": ranks, "Process Group Ranks": shortened(list(range(ranks)))}
    events = [
        {**kernel, "ts": at, "dur": us, "args": {**args, "Collective name": name, "In msg nelems": elements}}
        for at, (name, elements, us) in enumerate(calls)
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)


def statistical(tmp_path: Path) -> Path:
    """A cluster's file whose statistical model prices it."""
    out = tmp_path / "cluster.toml"
    assert (
        main.run(["fit", "--nccl-tests", str(nccl_logs.write(tmp_path, slow(), "all_reduce", 8, 1)), "--out", str(out)])
        == 0
    )
    out.write_text(out.read_text().replace('model = "white-box"', 'model = "statistical"'))
    return out


def test_the_statistical_model_learns_from_what_a_job_s_profiler_saw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half as long again on the rank that comes last, and a fifth more than that on the one that waits."""
    before, out = statistical(tmp_path), tmp_path / "moved.toml"
    work, group = Collective("all_reduce", 4 << 22, "float32", 0), Group("all", tuple(range(8)), 8)

    def us(file: Path) -> float:
        price = collective_models(hardware.choose_cluster(cluster=file))[1].price([Transfer(work, group)], slow())[0]
        assert price is not None
        return price.duration_ns / 1e3

    own = 1.5 * us(before)
    sizes = [("allreduce", 1 << 22, own)] * 40
    traces = [
        traced(tmp_path / f"rank{rank}.json", [("_unknown", 8, 1.0), *((n, e, t * late) for n, e, t in sizes)])
        for rank, late in enumerate((1.2, 1.0))
    ]
    capsys.readouterr()
    assert main.run(["fit", "--update", str(before), *traces, "--out", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["40 collectives on 2 ranks", "left out 2: _unknown, which is not supported"]
    assert said[3] == "median third quartile with late ranks: 1.20 times the shortest time"
    assert us(out) == pytest.approx(1.2 * own, rel=0.03)
    assert hardware.choose_cluster(cluster=out).collectives["measured"]


@pytest.mark.parametrize("ranks", [16, 64, 1024])
def test_a_model_of_two_nodes_learns_from_a_job_of_any_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ranks: int
) -> None:
    """The profiler shortens the list of more than 30 ranks, and the file describes fewer nodes than the job had."""
    logs = [str(nccl_logs.write(tmp_path, slow(), "all_reduce", 8 * nodes, nodes)) for nodes in (1, 2)]
    file, out = tmp_path / "cluster.toml", tmp_path / "moved.toml"
    assert main.run(["fit", "--nccl-tests", *logs, "--out", str(file)]) == 0
    file.write_text(file.read_text().replace('model = "white-box"', 'model = "statistical"'))
    traces = [traced(tmp_path / f"rank{rank}.json", [("allreduce", 1 << 24, 9e4)] * 30, ranks) for rank in range(2)]
    capsys.readouterr()
    assert main.run(["fit", "--update", str(file), *traces, "--out", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "30 collectives on 2 ranks"
    before, after = map(float, re.findall(r"([\d.]+)% (?:before|now)", said[1]))
    assert after < before


@pytest.mark.parametrize(
    ("calls", "count", "message"),
    [
        ([("allreduce", 8, 1.0)], 1, "give the traces of two or more"),
        (
            [("broadcast", 8, 1.0)],
            2,
            "cluster.toml models all_reduce, but the traces contain broadcast: fit the file to",
        ),
    ],
)
def test_traces_that_teach_nothing_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], calls: list[tuple[str, int, float]], count: int, message: str
) -> None:
    file, out = statistical(tmp_path), tmp_path / "moved.toml"
    traces = [traced(tmp_path / f"rank{rank}.json", calls) for rank in range(count)]
    assert main.run(["fit", "--update", str(file), *traces, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_traces_of_a_larger_job_than_the_file_describes_are_told_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = statistical(tmp_path), tmp_path / "moved.toml"
    traces = [traced(tmp_path / f"rank{rank}.json", [("allreduce", 1 << 22, 9.0)], ranks=16) for rank in range(2)]
    capsys.readouterr()
    assert main.run(["fit", "--update", str(file), *traces, "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"presim: the traces are of a job with rank 15 and {file} describes 8 GPUs (nodes = 1): raise nodes in the "
        "file to the job's, or give traces of a job that fits it\n"
    )
    assert not out.exists()


def test_a_log_is_not_overwritten_and_names_its_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = nccl_logs.write(tmp_path, slow(), "all_reduce", 8, 1)
    before = log.read_bytes()
    assert main.run(["fit", "--nccl-tests", str(log), "--out", str(log)]) == 2
    assert capsys.readouterr().err.endswith("is read, and would be overwritten; name another file to write\n")
    assert log.read_bytes() == before
    assert main.run(["fit", "--nccl-tests", str(log), "--gpu", "mi300x", "--out", str(tmp_path / "out.toml")]) == 2
    expected = "(h100-sxm), and --gpu is mi300x; leave --gpu out, or give logs of mi300x\n"
    assert capsys.readouterr().err.endswith(expected)
