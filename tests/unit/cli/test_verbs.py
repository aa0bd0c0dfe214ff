"""The verbs that need no GPU program: simulate and trace, and what all verbs share."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

import presim
from presim.cli import main
from presim.cli.trace import command as trace_command
from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.hardware.cluster import NodeGroup
from presim.report import json
from presim.trace import job_store
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import ClusterTables
from presim.trace.signatures import Gemm
from support import workloads

HEAVY = ("torch", "numba", "pyarrow", "numpy", "rich", "perfetto", "jinja2")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of 128 ranks, saved."""
    directory = tmp_path_factory.mktemp("job")
    job_store.save([workloads.llama_8b(steps=2, layers=3)], directory)
    return directory


def called(capsysbinary: pytest.CaptureFixture[bytes], *args: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command line."""
    code = main.run([str(arg) for arg in args])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def test_help_loads_nothing_heavy() -> None:
    """`presim --help` is there at once because no verb is imported for it."""
    code = "import sys; from presim.cli.main import run; run(['--help']); print(sorted(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "simulate" in printed
    assert not [name for name in HEAVY if f"'{name}'" in printed.splitlines()[-1]]


def modules_of(*words: object) -> set[str]:
    """The modules that a call of presim has loaded."""
    code = "import sys; from presim.cli.main import run; run(sys.argv[1:]); print(*sys.modules)"
    call = [sys.executable, "-c", code, *map(str, words)]
    return set(subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split())


FOR_OTHER_OUTPUT = ("jinja2", "xml.etree", "perfetto")  # pages, topologies, timelines
CALLS: dict[str, tuple[str, tuple[str, ...]]] = {  # what a call of each kind leaves unloaded besides
    "lines": ("network explain --gpu h100-sxm --nodes 16 --collective all_reduce", ("rich", "email", "pyarrow")),
    "a part of the catalogue": ("hardware show h100-sxm", ("email", "pyarrow")),
    "a list": ("models llama3-8b", ("pyarrow",)),
    "a simulation": ("simulate {saved}", ("torch", "numba")),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_verb_loads_nothing_for_other_outputs(kind: str, saved: Path) -> None:
    words, others = CALLS[kind]
    loaded = modules_of(*(word.format(saved=saved) for word in words.split()))
    assert not loaded.intersection((*FOR_OTHER_OUTPUT, *others))


def test_two_outputs_in_one_file_are_refused(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """However the path is written; the later one would have taken the place of the other."""
    code, out, err = called(capsysbinary, "simulate", saved, "--html", tmp_path / "a", "--json", f"{tmp_path}/./a")
    assert (code, out) == (2, "")
    assert err == f"presim: two outputs have the same path {tmp_path / 'a'}: give each its own file\n"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("place", ["{saved}/job.json", "{saved}/../{saved.name}/job.json", "{link}"])
def test_an_output_takes_no_part_of_the_trace(
    place: str, saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It would have been gone; another file in that folder does no harm."""
    link = tmp_path / "link.json"
    link.symlink_to(saved / "job.json")
    path = place.format(saved=saved, link=link)
    said = f"presim: {path} is part of the saved trace; give another file\n"
    assert called(capsysbinary, "simulate", saved, "--quiet", "--json", path) == (2, "", said)
    assert called(capsysbinary, "run", "--save", saved, "--json", path, "train.py") == (2, "", said)
    assert called(capsysbinary, "simulate", saved, "--quiet", "--json", saved / "result.json") == (0, "", "")


def test_a_page_does_not_take_the_result_s_place(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "result.json"
    called(capsysbinary, "simulate", saved, "--quiet", "--json", path)
    said = f"presim: {path} is the result itself; name another file for the page\n"
    assert called(capsysbinary, "report", path, "--html", path) == (2, "", said)
    assert json.decode(path.read_bytes()).job.world_size == 128


def test_simulate_reports_and_writes_what_was_asked_for(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The report on the terminal, four files beside it."""
    names = ("result.json", "page.html", "trace.pftrace", "memory.pickle")
    result, page, tracks, memory = (tmp_path / name for name in names)
    options = ("--json", result, "--html", page, "--perfetto", tracks, "--memory-snapshot", memory)
    code, out, err = called(capsysbinary, "simulate", saved, *options)
    assert (code, err) == (0, "")
    assert "What limits the step" in out
    assert json.decode(result.read_bytes()).job.world_size == 128
    assert "What limits the step" in page.read_text()
    assert tracks.stat().st_size > 1000
    assert memory.stat().st_size > 1000


def test_json_on_standard_output_replaces_the_report(saved: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """So that it can be piped."""
    _, out, _ = called(capsysbinary, "simulate", saved, "--json", "-")
    assert json.decode(out.encode()).job.gpu == "h100-sxm"


def test_quiet_prints_nothing(saved: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The exit code says that it worked."""
    assert called(capsysbinary, "simulate", saved, "--quiet") == (0, "", "")


def test_another_gpu_takes_another_time(saved: Path) -> None:
    """The same trace on a slower GPU is slower; the Python function says the same as the verb."""
    fast, slow = presim.simulate(saved), presim.simulate(saved, gpu="a100-80gb-sxm")
    assert fast.step_time_s is not None
    assert slow.step_time_s is not None
    assert slow.step_time_s > 1.5 * fast.step_time_s
    assert (slow.job.gpu, slow.job.captured_gpu) == ("a100-80gb-sxm", "h100-sxm")


def test_what_the_captured_clusters_file_said_of_collectives_is_kept(saved: Path, tmp_path: Path) -> None:
    """Its [nccl] and [collectives] price the saved trace again; on another fabric they say nothing."""
    (trace,) = job_store.load(saved).traces.values()
    tables = ClusterTables({"NCCL_ALGO": "Tree"}, {"link": {"efficiency": [0.002, 0.03, 0.06]}})
    parts = msgspec.structs.replace(trace.manifest, node="hgx-h100", fabric="ib-ndr-400", cluster_tables=tables)
    job_store.save([dataclasses.replace(trace, manifest=parts)], tmp_path)
    plain, slow, elsewhere, usual = (
        result.step_time_s or 0.0
        for result in (
            presim.simulate(saved),
            presim.simulate(tmp_path),
            presim.simulate(tmp_path, fabric="roce-400"),
            presim.simulate(saved, fabric="roce-400"),
        )
    )
    assert slow > 1.05 * plain
    assert elsewhere == usual


def test_the_captured_clusters_network_and_groups_are_kept(saved: Path, tmp_path: Path) -> None:
    """A saved job is simulated on the fabric and the nodes of the file it was captured for; elsewhere they are gone."""
    (trace,) = job_store.load(saved).traces.values()
    slow = choose_cluster(gpu="a100-80gb-sxm", nodes=2)
    group = NodeGroup("old", 0, 1, slow.gpu, slow.node, slow.fabric)
    for name, tables in (
        ("network", ClusterTables(network={"leaf_nodes": 1, "oversubscription": 8.0})),
        ("groups", ClusterTables(groups=msgspec.to_builtins([group]))),
    ):
        parts = msgspec.structs.replace(trace.manifest, node="hgx-h100", fabric="ib-ndr-400", cluster_tables=tables)
        job_store.save([dataclasses.replace(trace, manifest=parts)], tmp_path / name)
    assert any("The network is described" in note for note in presim.simulate(tmp_path / "network").notes)
    assert any("The cluster has 2 groups of nodes" in note for note in presim.simulate(tmp_path / "groups").notes)
    assert not any("groups of nodes" in note for note in presim.simulate(tmp_path / "groups", gpu="b200").notes)
    with pytest.raises(InputError, match="was captured for 1 groups of nodes with 128 GPUs"):
        presim.simulate(tmp_path / "groups", nodes=32)


def test_other_nodes_for_the_same_ranks(saved: Path) -> None:
    """128 ranks on 32 nodes are four to a node."""
    assert presim.simulate(saved, nodes=32).job.gpus_per_node == 4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--nodes", 4, "--gpus-per-node", 8),
            "presim: the 128 ranks of 'fsdp' hold shards of the parameters, and their sizes change with their number; "
            "capture the job with --world-size 32",
        ),
        (("--rank", 5), "presim: rank 5 was not captured; the job has rank 0"),
        (("--gpu", "h100-smx"), "presim: unknown GPU 'h100-smx': did you mean h100-sxm"),
        (("--json", "/no/such/place.json"), "presim: cannot write /no/such/place.json: there is no such directory"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    saved: Path, args: tuple[object, ...], message: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """On standard error, with exit code 2 and no traceback."""
    code, out, err = called(capsysbinary, "simulate", saved, *args)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_options_behind_the_script_are_named_where_no_gpu_is(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    said = "presim: no GPU is named. Were --gpu, --nodes=2 meant for presim? Its options come before the script\n"
    assert called(capsysbinary, "run", "train.py", "--gpu", "h100-sxm", "--nodes=2", "--lr=1") == (2, "", said)


@pytest.mark.parametrize("word", ["train.py", "torchrun", "/usr/bin/python3"])
@pytest.mark.parametrize("verb", ["run", "simulate"])
def test_a_file_to_write_does_not_swallow_what_comes_next(
    verb: str, word: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A script behind it would have been written over."""
    said = f"presim: --json needs the name of an output file before {word}: "
    ways = f"`--json - {word} …` prints it, `--json result.json {word} …` saves it\n"
    assert called(capsysbinary, verb, "--json", word) == (2, "", said + ways)
    assert called(capsysbinary, verb, "--json", word, "h100-sxm", "other.py") == (2, "", said + ways)


def test_a_file_to_write_is_no_saved_trace(saved: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    said = f"presim: --html needs the name of an output file before {saved}: `--html report.html {saved} …` saves it\n"
    assert called(capsysbinary, "simulate", "--html", saved) == (2, "", said)


@pytest.mark.parametrize(
    "args",
    [
        ("trace", "{saved}", "--json"),
        ("hardware", "show", "--json", "-", "h100-sxm"),
        ("models", "--json"),
        ("simulate", "--json", "--gpu", "h100-sxm", "{saved}"),
    ],
)
def test_json_without_a_file_is_printed(
    args: tuple[str, ...], saved: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = called(capsysbinary, *(arg.format(saved=saved) for arg in args))
    assert (code, err) == (0, "")
    assert msgspec.json.decode(out)


def test_an_unknown_verb_gets_the_nearest(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A typo costs one look."""
    code, _, err = called(capsysbinary, "simulat", "x")
    assert code == 2
    assert "no verb 'simulat'; did you mean simulate?" in err


def test_an_interrupt_has_its_exit_code(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """130, as a shell expects of Ctrl-C."""

    def interrupted(directory: str, ranks: object = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job_store, "load", interrupted)
    code, _, err = called(capsysbinary, "trace", "anything")
    assert code == 130
    assert err.strip() == "presim: interrupted"


def test_trace_counts_what_is_there(saved: Path) -> None:
    """Streams, collectives and signatures in words."""
    out = CliRunner().invoke(trace_command, [str(saved)]).stdout
    for text in ("rank 0 of 128 on h100-sxm, ended: ok", "all_gather", "reduce_scatter", "cudaFuncSetAttribute 3x"):
        assert text in out


def test_trace_shows_entries(saved: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Those that were asked for, with their names resolved."""
    _, out, _ = called(capsysbinary, "trace", saved, "--json", "-", "--entries", "13:16")
    entries = msgspec.json.decode(out)["entries"]
    assert [entry["kind"] for entry in entries] == ["work", "work", "work"]
    assert entries[2]["operator"] == "aten::embedding"
    _, text, _ = called(capsysbinary, "trace", saved, "--entries", "13:16")
    assert "aten::embedding" in text


@pytest.mark.parametrize("text", ["5", "a:b", "9:2", "-3:2", "99999999:"])
def test_a_bad_range_is_explained(saved: Path, text: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """What a range looks like stands in the message, or what is wrong with its ends."""
    code, _, err = called(capsysbinary, "trace", saved, f"--entries={text}")
    assert code == 2
    assert "--entries" in err


def test_no_trace_there_is_one_sentence(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """It names the command that makes one."""
    code, _, err = called(capsysbinary, "simulate", tmp_path)
    assert code == 2
    assert "holds no trace" in err
    assert "presim run --save" in err


@pytest.mark.parametrize("verb", ["trace", "simulate"])
def test_a_result_is_no_trace(verb: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")
    code, out, err = called(capsysbinary, verb, path)
    assert (code, out) == (2, "")
    assert err.endswith(f"is a file, but a trace is a folder; if it is a result, show it with `presim report {path}`\n")


def test_ranks_of_one_job_are_simulated_together(tmp_path: Path) -> None:
    """The report is on the rank that was asked for."""
    traces = []
    for rank in (0, 3):
        manifest = msgspec.structs.replace(default_manifest(), rank=rank, world_size=8)
        build = TraceBuilder(manifest)
        for _ in range(rank + 1):
            build.work(Gemm(4096, 4096, 4096, 1, "bfloat16"))
        build.step()
        traces.append(build.trace())
    job_store.save(traces, tmp_path)
    first, last = (presim.simulate(tmp_path, rank=rank) for rank in (0, 3))
    assert (first.job.rank, last.job.rank) == (0, 3)
    assert (first.operators[0].count, last.operators[0].count) == (1, 4)


def test_every_verb_has_its_line() -> None:
    """The table of the help and the modules agree."""
    context = click.Context(main.cli)
    for verb in main.cli.list_commands(context):
        command = main.cli.get_command(context, verb)
        assert command is not None
        assert command.name == verb


def presim_in_a_shell(command: str, saved: Path) -> subprocess.CompletedProcess[bytes]:
    """``presim`` of this interpreter with the saved trace as ``$JOB``."""
    environment = {**os.environ, "JOB": str(saved), "PRESIM": f"{sys.executable} -m presim"}
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (
            "$PRESIM simulate $JOB --json - >/dev/full",
            2,
            b"presim: cannot write to standard output: No space left on device\n",
        ),
        ("$PRESIM simulate $JOB --json - >&-", 0, b""),
        ("$PRESIM hardware list | true; exit ${PIPESTATUS[0]}", 141, b""),
        ("PYTHONIOENCODING=ascii $PRESIM trace $JOB", 0, b""),
    ],
)
def test_whatever_standard_output_is(command: str, code: int, says: bytes, saved: Path) -> None:
    """Full, closed, read by one who leaves, or of an encoding without our signs: a sentence at most."""
    ended = presim_in_a_shell(command, saved)
    assert (ended.returncode, ended.stderr) == (code, says)
