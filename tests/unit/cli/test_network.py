"""`presim network`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from presim.cli.main import cli, run

CLUSTER = """
gpu = "h100-sxm"
nodes = 4

[network]
leaf_nodes = 2
oversubscription = 4.0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return path


def called(*args: object) -> str:
    result = CliRunner().invoke(cli, ["network", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_it_says_what_there_is(file: Path) -> None:
    counts = {"gpus": 32, "vertices": 71, "links": 196}
    assert json.loads(called(file, "--json")) == {"schema": "presim-network/1", **counts}


def test_the_links_to_blame_come_first(file: Path) -> None:
    """An all-to-all fills the uplinks of the leaves."""
    answer = json.loads(called(file, "--collective", "all_to_all", "--json"))
    blamed = answer["busiest_links"][0]
    assert "leaf" in blamed["link"]
    assert blamed["utilisation"] == pytest.approx(1, abs=0.01)
    assert (
        answer["seconds"]
        > json.loads(called(file, "--collective", "all_to_all", "--ranks", "0-15", "--json"))["seconds"]
    )
    assert "100.0% of   200.0 GB/s  leaf0 -> spine0" in called(file, "--collective", "all_to_all")


def test_it_says_what_twice_the_bandwidth_of_the_full_links_would_give(file: Path) -> None:
    """Leaves of 4:1 limit an all-to-all; with 2:1 it takes half as long. Ports limit what stays under a leaf."""
    answer = json.loads(called(file, "--collective", "all_to_all", "--json"))
    assert answer["relief"]["links"] == "leaf - spine"
    assert answer["relief"]["count"] == 4
    assert answer["relief"]["seconds"] == pytest.approx(answer["seconds"] / 2, rel=0.01)
    inside = json.loads(called(file, "--collective", "all_to_all", "--ranks", "0-15", "--json"))
    assert inside["relief"]["links"] == "leaf - nic"
    assert (
        called(file, "--collective", "all_to_all")
        .splitlines()[-1]
        .startswith("With twice the bandwidth of the 4 links leaf - spine: ")
    )


def test_groups_that_exchange_together_are_counted(file: Path) -> None:
    text = called(file, "--collective", "all_reduce", "--ranks", "0-24:8", "--together", "--bytes", "64MiB")
    assert "8 groups of 4 ranks at once" in text
    assert "of 8 groups)" in text


def test_it_draws(file: Path, tmp_path: Path) -> None:
    called(file, "--plot", tmp_path / "net.svg")
    drawn = (tmp_path / "net.svg").read_text()
    assert drawn.startswith("<svg")
    assert drawn.count("<circle") == 71
    assert drawn.count("<line") == 98


def test_a_drawing_of_a_part_says_so(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("presim.hardware.network.topology_plot.MAX_VERTICES", 40)
    assert "draws the first 40 of 71 GPUs and switches" in called(file, "--plot", tmp_path / "net.svg")
    assert (tmp_path / "net.svg").read_text().count("<circle") == 40


def test_it_explains_what_nccl_chooses(file: Path) -> None:
    lines = called("explain", "--cluster", file, "--collective", "all_reduce").splitlines()
    assert lines[0] == "all_reduce"
    assert lines[1].split()[:6] == ["256", "B", "to", "128", "KiB", "Tree"]
    assert lines[-1].split()[5:7] == ["Ring", "Simple"]


def test_one_size_has_every_candidate_and_the_variables(file: Path) -> None:
    text = called("explain", "--cluster", file, "--bytes", "1GiB", "--ranks", "0-7", "--set", "NCCL_CROSS_NIC=1")
    assert "all_gather of 1GiB between 8 GPUs" in text
    assert text.count("<- NCCL's choice") == 3
    assert "  NCCL_CROSS_NIC=1: not modelled: it may change the time of collectives" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpu", "h100-sxm"), "1 rank has no one to communicate with"),
        (("--gpu", "h100-sxm", "--nodes", "2", "--ranks", "0,99"), "--ranks names rank 99"),
        (("--gpu", "h100-sxm", "--nodes", "2", "--collective", "send"), "NCCL chooses no algorithm for 'send'"),
        (("--gpu", "h100-sxm", "--nodes", "2", "--nccl-version", "x"), "NCCL's version 'x' is not like 2.27"),
        (("--gpu", "h100-sxm", "--nodes", "2", "--set", "ALGO=ring"), "--set takes NCCL_NAME=VALUE"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["network", "explain", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--plot",), ("--export", "ns3")])
def test_the_file_that_is_read_is_not_overwritten(
    file: Path, option: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["network", str(file), *option, str(file)]) == 2
    assert "is read, and would be overwritten; name another file to write" in capsys.readouterr().err
    assert file.read_text() == CLUSTER


def test_a_message_of_three_ranks_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["network", str(file), "--collective", "send", "--ranks", "0-2"]) == 2
    assert "a send is between two ranks, and --ranks names 3; name two" in capsys.readouterr().err


def test_a_network_is_exported(file: Path) -> None:
    called("show", file, "--export", "simai", file.with_name("simai.txt"))
    assert called("show", file.with_name("simai.txt")).startswith("32 GPUs, ")


def test_it_says_where_the_variables_allow_nothing(file: Path) -> None:
    text = called("explain", "--cluster", file, "--collective", "all_reduce", "--set", "NCCL_ALGO=allreduce:nvls")
    assert "The variables allow nothing that the library has: NCCL fails. The fastest that presim knows." in text


def test_large_collectives_name_what_would_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, more than 200,000 flows had no such line: an all-to-all of 512 GPUs."""
    file = tmp_path / "cluster.toml"
    file.write_text('gpu = "h100-sxm"\nnodes = 64\n[network]\nleaf_nodes = 8\noversubscription = 4.0\n')
    assert run(["network", str(file), "--collective", "all_to_all", "--bytes", "256MiB", "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["flows"] == 512 * 511
    assert answer["relief"]["links"] == "leaf - spine"
    assert answer["relief"]["seconds"] == pytest.approx(answer["seconds"] / 2, rel=0.01)
