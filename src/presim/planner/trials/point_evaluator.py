"""Evaluate points: compose a plan, extend a framework's captures to it, or capture the user's command."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from presim.errors import InputError, PresimError
from presim.planner.knobs import CLUSTER, plan_of, to_plan_fields
from presim.planner.trials.command_evaluator import CommandEvaluator
from presim.planner.trials.evaluated_figures import figures, reply_of, short_text
from presim.planner.trials.trial import Figures, Point, Value
from presim.planner.trials.trial_messages import Reply, Subject, Trainer
from presim.system.files import decode_messagepack
from presim.units import gib

if TYPE_CHECKING:
    from pathlib import Path

    from presim.composition.graph.graph_schema import OperatorGraph
    from presim.composition.plan import Plan
    from presim.cost.chain import Chain
    from presim.cost.price import PricedTrace
    from presim.evaluation.options import EvaluationOptions
    from presim.evaluation.what_if import Changes
    from presim.hardware.cluster import Cluster
    from presim.planner.trials.reply_cache import ReplyCache
    from presim.trace.schema import Trace

_SIMULATED = (  # options that affect the simulation or prices
    "host_factor",
    "host_time",
    "contention",
    "overlap_model",
    "bandwidth",
    "stragglers",
    "scale_op",
    "estimator",
)
_PLUGINS = ("presim.estimators", "presim.collectives", "presim.passes")
_MANY_STAGES = 4  # with fewer stages, the first one is too large a share of all of them to compose it twice


class PlanEvaluator:
    """Evaluates the points of one job; caches graphs, clusters and prices between points."""

    def __init__(self, job: Subject) -> None:
        self._job = job
        self._graph: OperatorGraph | None = None
        self._clusters: dict[tuple[object, ...], Cluster] = {}
        self._chains: dict[str, Chain] = {}

    def evaluate(self, point: Point) -> Reply:
        """The reply for a point."""
        try:
            if self._job.trainer is not None:
                return self._reply_of_framework(self._job.trainer, point)
            return (
                self._command.reply(point)
                if self._job.command
                else self._reply_to_plan(to_plan_fields(point, self._job.plan_fields))
            )
        except InputError as error:
            is_captured = bool(self._job.command) or self._job.trainer is not None
            return Reply(fate="failed" if is_captured else "illegal", words=short_text(error))
        except PresimError as error:
            return Reply(fate="failed", words=short_text(error))

    def cluster(self, point: Mapping[str, Value]) -> Cluster:
        """The cluster of a point, with the bandwidths of the what-if changes."""
        from presim.hardware.cluster_choice import choose_cluster

        cluster_options: dict[str, Any] = {
            name: point.get(name, self._job.options.get(name)) for name in (*CLUSTER, "cluster")
        }
        name = tuple(cluster_options.values())
        if name not in self._clusters:
            self._clusters[name] = self.changes.changed_cluster(choose_cluster(**cluster_options))
        return self._clusters[name]

    @functools.cached_property
    def changes(self) -> Changes:
        """The what-if changes, which hold for all plans."""
        from presim.verbs.target import what_if_changes

        changes = what_if_changes(evaluation_options(self._job.options, {}))
        return dataclasses.replace(changes, is_for_many_jobs=True)

    @functools.cached_property
    def _command(self) -> CommandEvaluator:
        return CommandEvaluator(self._job, self.state_of_prices())

    def graph(self) -> OperatorGraph:
        """The model."""
        from presim.composition.graph.graph_schema import OperatorGraph

        if self._graph is None:
            self._graph = decode_messagepack(self._job.graph, OperatorGraph)
        return self._graph

    def chain(self, cluster: Cluster) -> Chain:
        """Prices for a cluster's GPU, cached between points; of a cluster with groups, for the view of one of them."""
        from presim.cost.chain import Chain
        from presim.cost.price_cache import with_caches

        name = repr((cluster.gpu, cluster.node.id, cluster.fabric, cluster.nodes, cluster.gpus_per_node))
        if name not in self._chains:
            self._chains[name] = with_caches(Chain.default(cluster, None, self._folders()))
        return self._chains[name]

    def _folders(self) -> list[Path]:
        from pathlib import Path

        from presim.cost.estimators import holds_prices

        return [folder for folder in map(Path, self._job.options.get("prices", ())) if holds_prices(folder)]

    def _reply_to_plan(self, point: Point) -> Reply:
        candidate, cluster = plan(point), self.cluster(point)
        # a user's pass may change between runs, so its replies are not cached
        if self.replies is None or any(":" in pass_name for pass_name in candidate.passes):
            return self._evaluate_plan(candidate, cluster)
        name = self._name(candidate, cluster)
        reply = self.replies.find(name)
        if reply is None:
            reply = self._evaluate_plan(candidate, cluster)
            self.replies.add(name, reply)
        return reply

    def _name(self, candidate: Plan, cluster: Cluster) -> str:
        """Cache key of the reply to a plan."""
        from presim.planner.trials.reply_cache import name_of

        options = {key: self._job.options.get(key) for key in _SIMULATED}
        prices = self.state_of_prices()
        return name_of(self._job.graph, candidate, cluster, sorted(options.items()), sorted(self._job.prune), prices)

    def state_of_prices(self) -> str:
        """Identifies the files of the user's prices."""
        from presim.planner.trials.reply_cache import state_of

        return state_of([path for folder in self._folders() for path in sorted(folder.rglob("*")) if path.is_file()])

    @functools.cached_property
    def replies(self) -> ReplyCache | None:
        """Cached replies of earlier searches; None if plug-ins may change prices or plans."""
        from presim.planner.trials.reply_cache import ReplyCache
        from presim.system import plugins

        return None if any(plugins.factories(group) for group in _PLUGINS) else ReplyCache.default()

    def _evaluate_plan(self, candidate: Plan, cluster: Cluster) -> Reply:
        if "first_stage" in self._job.prune and candidate.pipeline >= _MANY_STAGES:
            first_stage = self._simulate_plan(candidate, cluster, first_only=True)
            if first_stage.fits is False:
                words = f"its first stage lacks {gib(-first_stage.headroom_bytes)}"
                return Reply(fate="pruned", figures=first_stage, rule="first_stage", words=words)
        return Reply(fate="priced", figures=self._simulate_plan(candidate, cluster))

    def _simulate_plan(self, candidate: Plan, cluster: Cluster, *, first_only: bool = False) -> Figures:
        from presim.cost.chain import price_trace
        from presim.evaluation.plan_evaluation import evaluate_plan
        from presim.verbs.target import engine_options

        engine = engine_options(evaluation_options(self._job.options, {}))
        changes, prices = dataclasses.replace(self.changes, bandwidth={}), self._folders()

        def price(trace: Trace, priced_cluster: Cluster) -> PricedTrace:
            return price_trace(trace, priced_cluster, self.chain(priced_cluster), prices=prices)

        evaluation = evaluate_plan(
            self.graph(),
            candidate,
            cluster,
            engine,
            repeat=not changes.stragglers,  # whose ranks are simulated by themselves
            first_only=first_only,
            pricer=price,
            brief=True,
            changes=changes,
        )
        return figures(evaluation, "composed")

    def _reply_of_framework(self, trainer: Trainer, point: Point) -> Reply:
        """The reply of captures of the framework's own trainer, which are kept, extended to the plan."""
        from presim.verbs.compose_framework import capture_plan_and_evaluate

        evaluation = capture_plan_and_evaluate(
            trainer.model,
            plan(point),
            plan_of(point),
            evaluation_options(self._job.options, point),
            framework=trainer.framework,
            precision=trainer.precision,
            overrides=trainer.overrides,
            simulates_all=False,
        )
        return reply_of(evaluation, "framework")


def evaluation_options(options: Mapping[str, Any], point: Mapping[str, Value]) -> EvaluationOptions:
    """How the plan of a point is evaluated: a search's options, and the point's own cluster."""
    from presim.evaluation.options import EvaluationOptions

    cluster = {name: point[name] for name in CLUSTER if name in point}
    names = EvaluationOptions.__dataclass_fields__
    return EvaluationOptions(**{name: value for name, value in {**options, **cluster}.items() if name in names})


def plan(point: Mapping[str, Value]) -> Plan:
    """The plan of a point.

    Raises:
        InputError: a field has an invalid value.
    """
    from presim.composition.plan import read_plan

    return read_plan(None, plan_of(point))


def single_threaded_environment() -> None:
    """Limit numerical libraries to one thread; the search already runs one process per CPU."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")
