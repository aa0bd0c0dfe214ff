"""The verbs as functions, for notebooks and other programs."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from presim.evaluation.options import ClusterOptions, ReplanOptions, RunOptions, SimulateOptions
from presim.result import Result
from presim.result.comparison import Comparison
from presim.studies.saved_jobs import compare_jobs
from presim.verbs.replan import replan_and_evaluate
from presim.verbs.run import run_and_evaluate
from presim.verbs.simulate import evaluate_saved

if TYPE_CHECKING:
    from presim.cli import keyword_types
    from presim.cli.asked import Option
    from presim.cli.option_keywords import (
        CalibrateKeywords,
        ReplanKeywords,
        RunKeywords,
        SearchKeywords,
        SimulateKeywords,
    )
    from presim.hardware.network.network_answer import NetworkAnswer
    from presim.planner.study import Answer
    from presim.post_training.rl_answer import RlAnswer
    from presim.result.deployments import DeployResult
    from presim.result.explanation import Explanation
    from presim.result.serving import ServingResult
    from presim.result.training import Projection
    from presim.studies.calibrate.fit_cluster import ClusterCalibration
    from presim.studies.gate.budget_check import Gate


def simulate(directory: str | os.PathLike[str], **options: Unpack[SimulateKeywords]) -> Result:
    """Price and simulate a saved trace, for another cluster where the options name one.

    The options are those of ``presim simulate``, as `presim.evaluation.options.SimulateOptions` lists them:
    ``simulate("DIR", gpu="h200-sxm", host_time=False)``.

    Raises:
        InputError: there is no trace, or it does not fit the cluster.
    """
    return evaluate_saved(directory, SimulateOptions(**options)).result


def replan(directory: str | os.PathLike[str], **options: Unpack[ReplanKeywords]) -> Result:
    """Simulate a saved job with more layers, micro-batches or data-parallel ranks than it was captured with.

    The options are those of ``presim replan``, as `presim.evaluation.options.ReplanOptions` lists them:
    ``replan("DIR", micro_batches=64, data_parallel=16)``.

    Raises:
        InputError: there is no such job, or it repeats no layers or no cycle of micro-batches, or its ranks hold shards
            of the parameters.
    """
    return replan_and_evaluate(directory, ReplanOptions(**options)).result


def run(script: str | os.PathLike[str], *args: str, quiet: bool = False, **options: Unpack[RunKeywords]) -> Result:
    """Capture a script and predict its performance on a cluster.

    The options are those of ``presim run``, as `presim.evaluation.options.RunOptions` lists them:
    ``run("train.py", "--batch", "2", gpu="h100-sxm", nodes=16)``. ``script`` with ``args`` may be a launch command:
    ``run("torchrun", "--nnodes", "16", "train.py", gpu=…)``. The script runs in a process of its own; ``quiet`` drops
    what it prints.

    Raises:
        InputError: an option or the script cannot be used.
        CaptureError: the script cannot be run here, or left nothing to price.
    """
    stdout = subprocess.DEVNULL if quiet else None
    return run_and_evaluate([os.fspath(script), *args], RunOptions(**options), stdout=stdout).result


def compare(*jobs: str | os.PathLike[str]) -> Comparison:
    """Compare the first of several saved jobs or results, by path, with each of the others.

    Raises:
        InputError: one of them cannot be read, or there is only one.
    """
    return compare_jobs(jobs)


def search(
    subject: str | Sequence[str],
    vary: Mapping[str, Sequence[object]] | Sequence[str] = (),
    *,
    fixed: Mapping[str, bool | int | float | str] | None = None,
    cluster: RunOptions | None = None,
    **keywords: Unpack[SearchKeywords],
) -> Answer:
    """Find the best plan of a model, or the best arguments of a command.

    ``subject``: a model as ``presim compose`` takes it, or a command with placeholders as a list of words. ``vary``:
    values by knob, or in the notation of ``--vary``. ``fixed``: knobs with one value; for a space
    file also sizes of the model. ``cluster``: the cluster, and how to capture and simulate:
    ``search("llama/", {"tp": [1, 2, 4]}, fixed={"sequence": 4096}, cluster=RunOptions(gpu=…))``.

    Raises:
        InputError: a knob, a value or an option is invalid, or the model cannot be traced.
    """
    from presim.planner.knobs import field_of
    from presim.planner.of_command import request_for_command
    from presim.planner.of_model import request_for_model
    from presim.planner.run_search import run as run_search
    from presim.planner.search_options import SearchOptions
    from presim.planner.trials.trial import format_value

    words = vary
    if isinstance(vary, Mapping):
        words = [f"{name}={','.join(format_value(value) for value in values)}" for name, values in vary.items()]  # type: ignore[arg-type]
    settings = SearchOptions(vary=list(words), **keywords)
    options = cluster or RunOptions()
    if isinstance(subject, str):
        fixed_fields = {field_of(name): value for name, value in (fixed or {}).items()}
        return run_search(request_for_model(subject, settings, options, fixed_fields))
    if settings.space is None and fixed:
        settings = dataclasses.replace(
            settings, vary=[*words, *(f"{name}={format_value(value)}" for name, value in fixed.items())]
        )
    return run_search(request_for_command(list(subject), settings, options, fixed))


def ask(verb: str, *arguments: str, **options: Option) -> Any:
    """Run any verb that writes a result, by the options of its command line, and return the result as data.

    ``ask("compose", "llama3-8b", gpu="h100-sxm", nodes=16, seq=4096)`` is `presim compose llama3-8b --gpu h100-sxm
    --nodes 16 --seq 4096 --json …`. True gives a flag, False the second of a pair such as --sp/--no-sp, a sequence an
    option several times. A name that Python reserves ends in ``_``. Fields of a plan are names, too: ``sequence=4096``
    is ``seq=4096``. What is returned has the type that `presim.studies.saved_results` reads, as `presim.result.Result`,
    or is a dictionary.

    Raises:
        InputError: there is no such verb or option, or the verb refuses its value.
    """
    from presim.cli.asked import answer

    return answer(verb, arguments, options)


def compose(model: str, **options: Unpack[keyword_types.ComposeKeywords]) -> Result:
    """A training job of a model by a plan, without a program; ``options`` as in `ask`.

    ``compose("llama3-8b", gpu="h100-sxm", nodes=2, tp=8, seq=8192)``.
    """
    result: Result = ask("compose", model, **options)
    return result


def serve(model: str, **options: Unpack[keyword_types.ServeKeywords]) -> ServingResult:
    """Latency and throughput of a served model under a load; ``options`` as in `ask`.

    ``serve("qwen3-32b", gpu="h200-sxm", rate=4.0, input=2048, output=512)``.
    """
    result: ServingResult = ask("serve", model, **options)
    return result


def deploy(model: str, **options: Unpack[keyword_types.DeployKeywords]) -> DeployResult:
    """The deployment of a model with the most throughput within an SLO; ``options`` as in `ask`.

    ``deploy("qwen3-32b", gpu=["h100-sxm", "h200"], input=2048, output=512, slo=["ttft:1000", "tpot:30"])``.
    """
    result: DeployResult = ask("deploy", model, **options)
    return result


def explain(job: str | os.PathLike[str], **options: Unpack[keyword_types.ExplainKeywords]) -> Explanation:
    """What limits a saved job, and what would help; ``options`` as in `ask`."""
    explanation: Explanation = ask("explain", os.fspath(job), **options)
    return explanation


def training(job: str | os.PathLike[str], **options: Unpack[keyword_types.TrainingKeywords]) -> Projection:
    """Duration and cost of a whole training from a step of a saved job; ``options`` as in `ask`.

    ``training("job", tokens=1e12, gpus=1024)``.
    """
    projection: Projection = ask("training", os.fspath(job), **options)
    return projection


def gate(budgets: str | os.PathLike[str], **options: Unpack[keyword_types.GateKeywords]) -> Gate:
    """The jobs of a TOML file held against their budgets; ``options`` as in `ask`."""
    checked: Gate = ask("gate", os.fspath(budgets), **options)
    return checked


def import_profile(*files: str | os.PathLike[str], **options: Unpack[keyword_types.ImportKeywords]) -> Result:
    """A job from the profile of a real run, evaluated on the hardware of the run; ``options`` as in `ask`."""
    result: Result = ask("import", *[os.fspath(file) for file in files], **options)
    return result


def network(cluster: str | os.PathLike[str], **options: Unpack[keyword_types.NetworkKeywords]) -> NetworkAnswer:
    """The described network of a cluster file, and a collective on it; ``options`` as in `ask`.

    ``network("cluster.toml", collective="all_to_all")``.
    """
    described: NetworkAnswer = ask("network", os.fspath(cluster), **options)
    return described


def validate(table: str | os.PathLike[str], **options: Unpack[keyword_types.ValidateKeywords]) -> list[dict[str, str]]:
    """The rows of a table of measured runs with their predictions; ``options`` as in `ask`.

    ``validate("collectives.csv", kind="collectives")``.
    """
    rows: list[dict[str, str]] = ask("validate", os.fspath(table), **options)["rows"]
    return rows


def calibrate(
    *run: str | os.PathLike[str], cluster: ClusterOptions, **keywords: Unpack[CalibrateKeywords]
) -> ClusterCalibration:
    """A cluster corrected by a run of one's own: its profiles, a log with step times, or the seconds of a step.

    ``calibrate("profile.json", cluster=ClusterOptions(gpu="h100-sxm"), trace="job").cluster``.

    Raises:
        InputError: the run cannot be read or explained, or a step time has no captured job beside it.
    """
    from presim.studies.calibrate.correct_cluster import calibrate_job

    return calibrate_job([os.fspath(word) for word in run], cluster, **keywords)


def rl(model: str, *, cluster: ClusterOptions, price_per_gpu_hour: float | None = None, **request: Any) -> RlAnswer:
    """Predict the steps of a post-training job: rollouts, log-probabilities, updates and transfers of weights.

    ``request``: fields of `presim.post_training.rl_request.RlRequest`, which documents each and its default:
    ``rl("qwen3-8b", cluster=ClusterOptions(gpu="h100-sxm", nodes=4), response="lognormal:mean=8000,p99=30000")``.

    Raises:
        InputError: a field is unknown or invalid, batches do not divide, or a role does not fit its GPUs.
    """
    from presim.post_training.rl_request import request_of
    from presim.verbs.rl import predict_rl

    return predict_rl(request_of(model, request), cluster, price_per_gpu_hour=price_per_gpu_hour)
