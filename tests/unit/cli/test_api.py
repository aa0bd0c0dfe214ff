"""The verbs as functions take what the command line takes, and complete it by what was captured."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import presim
from presim.cli import asked
from presim.cli.option_keywords import ReplanKeywords, RunKeywords, SimulateKeywords
from presim.cli.replan import command as replan_command
from presim.cli.run import command as run_command
from presim.cli.simulate import command as simulate_command
from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, ReplanOptions, RunOptions, SimulateOptions
from presim.trace import job_store
from presim.trace.schema import Trace
from support import workloads

# What a verb takes besides: what to run or read, and where the result goes.
BESIDE = {
    "script",
    "args",
    "directory",
    "json_file",
    "perfetto",
    "memory_snapshot",
    "chakra",
    "kineto",
    "html",
    "tokens",  # a report beside the result
    "price_per_gpu_hour",
    "quiet",
}
OWN_NODE = """
base = "hgx-h100"
default_fabric = "ethernet-100"
"""


def saved(directory: Path, **manifest: Any) -> Path:
    """A job of 128 ranks whose manifest says more."""
    trace = workloads.llama_8b(steps=1, layers=1)
    job_store.save([with_manifest(trace, **manifest)], directory)
    return directory


def with_manifest(trace: Trace, **fields: Any) -> Trace:
    return dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, **fields))


@pytest.mark.parametrize(
    ("keywords", "options", "command"),
    [
        (SimulateKeywords, SimulateOptions, simulate_command),
        (ReplanKeywords, ReplanOptions, replan_command),
        (RunKeywords, RunOptions, run_command),
    ],
)
def test_an_option_is_one_for_functions_and_verbs(keywords: Any, options: Any, command: Any) -> None:
    """Keywords of the function, fields of the value and options of the verb have the same names."""
    fields = {field.name for field in dataclasses.fields(options)}
    assert keywords.__optional_keys__ == fields == {parameter.name for parameter in command.params} - BESIDE


@pytest.mark.parametrize(
    ("options", "command"),
    [(SimulateOptions, simulate_command), (ReplanOptions, replan_command), (RunOptions, run_command)],
)
def test_defaults_are_the_same_for_functions_and_verbs(options: Any, command: Any) -> None:
    parsed = copy.copy(command).make_context(None, ["x"]).params  # a copy, because click keeps what it finds
    assert options(**{name: value for name, value in parsed.items() if name not in BESIDE}) == options()


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(TypeError, match="gpus"):
        presim.run("train.py", gpus=8)  # type: ignore[call-arg]


def test_a_saved_trace_keeps_its_node_and_fabric(tmp_path: Path) -> None:
    """Without options the cluster is the one that was captured for, down to its wires."""
    usual = presim.simulate(saved(tmp_path / "usual"))
    slower = presim.simulate(saved(tmp_path / "slower", fabric="ethernet-100", node="hgx-h100"))
    assert usual.step_time_s is not None
    assert slower.step_time_s is not None
    assert slower.step_time_s > usual.step_time_s
    assert presim.simulate(tmp_path / "usual", fabric="ethernet-100").step_time_s == slower.step_time_s


def test_a_node_of_ones_own_has_to_be_named_again(tmp_path: Path) -> None:
    """A trace holds ids, and the user's own files have none that the catalogue knows."""
    with pytest.raises(InputError, match="for a node of your own, 'mine': name its file again with --node"):
        presim.simulate(saved(tmp_path / "job", node="mine"))
    (tmp_path / "mine.toml").write_text(OWN_NODE)
    own = presim.simulate(tmp_path / "job", node=str(tmp_path / "mine.toml"))
    assert own.step_time_s == presim.simulate(tmp_path / "job", node="hgx-h100", fabric="ethernet-100").step_time_s


def test_the_package_lists_its_verbs_and_no_package_hides_one() -> None:
    """`dir(presim)` is the list; importing the packages behind the verbs leaves them functions."""
    import presim.composition.compose
    import presim.evaluation.evaluate_traces
    import presim.planner.run_search
    import presim.serving.serving_plan

    assert dir(presim) == sorted(presim.__all__)
    verbs = [name for name in presim.__all__ if name.islower() and not name.startswith("_")]
    assert {"calibrate", "network", "validate", "compare", "gate", "import_profile", "rl"} <= set(verbs)
    assert {"compose", "deploy", "explain", "replan", "run", "search", "serve", "simulate", "training"} <= set(verbs)
    assert all(callable(getattr(presim, name)) for name in verbs)


def test_a_network_and_a_table_are_asked_as_values(tmp_path: Path) -> None:
    """One verb prints its result, the other writes a table."""
    (tmp_path / "c.toml").write_text('gpu = "h100-sxm"\nnodes = 2\n[network]\n')
    described = presim.network(tmp_path / "c.toml")
    assert described.gpus == 16
    exchanged = presim.network(tmp_path / "c.toml", collective="all_to_all", ranks="0-7")
    assert (exchanged.collective, exchanged.ranks) == ("all_to_all", 8)
    table = "id,gpu,n_gpus,nodes,collective,size_bytes,time_us\na,h100-sxm,8,1,all_reduce,1048576,60\n"
    (tmp_path / "t.csv").write_text(table)
    (row,) = presim.validate(tmp_path / "t.csv", kind="collectives")
    assert float(row["predicted_time_us"]) > 0


def test_a_cluster_is_corrected_by_the_seconds_of_a_step(tmp_path: Path) -> None:
    simulated = presim.simulate(saved(tmp_path / "job"))
    assert simulated.step_time_s
    options = ClusterOptions(gpu="h100-sxm")
    slower = presim.calibrate(str(simulated.step_time_s * 1.1), cluster=options, trace=tmp_path / "job")
    assert slower.cluster.gpu.name


def test_a_verb_is_asked_by_its_options() -> None:
    """As on the command line, which has the same figures."""
    result = presim.compose("llama3-1b", gpu="h100-sxm", world_size=8, seq=1024, dp_style="ddp")
    assert isinstance(result, presim.Result)
    assert result.step_time_s
    with pytest.raises(InputError, match="no option 'spoons'"):
        presim.compose("llama3-1b", spoons=3)  # type: ignore[call-arg]


def test_an_option_is_named_by_its_flag_or_by_the_field_that_it_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that turns something off is True where the field is False."""
    lines: list[list[str]] = []
    monkeypatch.setattr(asked.cli, "main", lambda words, **_: lines.append(words[:-2]))
    monkeypatch.setattr(asked, "read", lambda path: SimpleNamespace(content=path))
    presim.compose("m", seq=4, mbs=2, dp_style="ddp", sp=False, straggler=["node1=2"], no_contention=True)
    presim.compose(
        "m",
        sequence=4,
        micro_batch=2,
        data_style="ddp",
        sequence_parallel=False,
        stragglers="node1=2",
        contention=False,
    )
    presim.compose("m", contention=True, no_contention=False)
    words = "--seq=4 --mbs=2 --dp-style=ddp --no-sp --straggler=node1=2 --no-contention"
    assert lines == [["compose", "m", *words.split()]] * 2 + [["compose", "m"]]


def test_the_package_has_types_for_its_users() -> None:
    """Type checkers read annotations of an installed package only where this file lies in it."""
    assert Path(presim.__file__).with_name("py.typed").is_file()
