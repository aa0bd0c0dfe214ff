"""What `presim deploy` answers: from a question to the deployment, its result and its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from presim.errors import InputError
from presim.result.deployments import DeployResult
from presim.serving.deployments import deployment_record, deployment_search
from presim.serving.deployments.advice import advice, shortfall
from presim.serving.deployments.capacity import OfferedLoad
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment_answer import DeploymentAnswer, answer
from presim.serving.deployments.deployment_ranking import Ranking, Say, deployment_of, rank
from presim.serving.deployments.deployment_search import Found
from presim.serving.deployments.question import DeploymentQuestion
from presim.serving.deployments.unfit import misfit
from presim.serving.fast.compiled_scheduler import compiled_run
from presim.serving.launching.bench_script import benchmark
from presim.serving.launching.folder import DeploymentFolder, write
from presim.serving.launching.launch_set import RouterProgram, launch_set_of
from presim.serving.model_lookup import find


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """All that is known of a question's deployments."""

    question: DeploymentQuestion
    ranking: Ranking
    answer: DeploymentAnswer | None  # None: nothing meets the SLO and the demand, or a signal came
    result: DeployResult

    @property
    def is_reached(self) -> bool:
        """Whether a deployment stands, or might have been found."""
        return self.answer is not None or self.ranking.partial


def decide(question: DeploymentQuestion, say: Say = str) -> Decision:
    """Search, simulate and confirm the deployments of a question; ``say`` is told what is being done.

    Raises:
        InputError: no plan can serve such requests, for another reason than memory.
    """
    load, demand, model = question.load, question.demand, find(question.word)
    space = question.space
    if not space.caches:
        space = dataclasses.replace(space, caches=(model.checkpoint.cache,))
    tokens = round(float(load.workload.prompt.mean())), max(round(load.output), 1)
    longest = int((load.workload.prompt + load.workload.output).max())
    say("compiling the scheduler's loop, or loading it")
    compiled_run()  # hundreds of simulations follow: uncompiled they take some twenty times as long as compiling it
    say("estimating plans")
    try:
        estimated = deployment_search.search(model, space, *tokens, load.slo, longest=longest)
    except InputError:
        if (lacking := misfit(model, space, longest)) is None:
            raise
        return Decision(question, Ranking((), 0, False), None, deployment_record.of_misfit(question, model, lacking))
    ranking = Ranking((), 0, True) if estimated.partial else rank(estimated, load, demand, say)
    best = None if ranking.partial else answer(ranking, load, demand, say)
    lacks = None if best or ranking.partial else _shortfall(estimated, load, demand)
    nearest = None if best or lacks or ranking.partial else ranking.nearest
    sentences = advice(nearest, model, space, *tokens, load.slo) if nearest else []
    result = deployment_record.result_of(question, model, estimated, ranking, best, sentences, lacks)
    return Decision(question, ranking, best, result)


def _shortfall(estimated: Found, load: OfferedLoad, demand: Demand) -> str | None:
    """What the limits allow at most, where it is less than what is asked."""
    if demand.relaxed() == demand:
        return None
    best = rank(estimated, load, demand.relaxed()).best
    return shortfall(best, demand) if best is not None else None


def write_files(decision: Decision, folder: Path, router: RouterProgram | None = None) -> None:
    """The files of the answer, with a benchmark at the rate that it serves."""
    assert decision.answer is not None
    best, load, word = decision.answer.best.outcome, decision.question.load, decision.question.word
    assert best.trial is not None  # of every deployment that meets an SLO
    deployment = deployment_of(best.point)
    bench = benchmark(deployment, load, best.trial.rate, best.trial.in_flight)
    launch_set = launch_set_of(best.point, word, router)
    write(DeploymentFolder(word, best.point.name, launch_set, deployment, bench, load.slo), folder)
