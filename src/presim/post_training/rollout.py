"""Generate responses on the engines of a pool: their own schedulers in simulated time, between changes of weights."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.post_training.rl_job import RlJob
from presim.post_training.turns import split
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import make

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Responses:
    """Responses that are generated or remain to be: one entry of every column each."""

    group: Ints  # number of the prompt in the whole run
    prompt: Ints  # tokens
    length: Ints  # tokens that the response will have
    generated: Ints  # tokens that it has

    def part(self, selected: NDArray[np.bool_]) -> Responses:
        """Some of them."""
        return Responses(*(getattr(self, field.name)[selected] for field in dataclasses.fields(self)))

    def with_added(self, added: Responses) -> Responses:
        """Both."""
        names = [field.name for field in dataclasses.fields(self)]
        return Responses(*(np.concatenate([getattr(self, name), getattr(added, name)]) for name in names))

    def __len__(self) -> int:
        return len(self.group)


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """What the engines do from one change of weights on, if nothing interrupts them; seconds from its start."""

    responses: Responses
    end_s: Floats  # by response
    served: Served
    ranks: int  # of all engines: an engine has one for each part of its data parallelism
    turns: int = 1  # requests of each response, one after the other

    @property
    def rank_end_s(self) -> Floats:
        """When each rank of the engines has generated its last token."""
        end_times = np.zeros(self.ranks)
        np.maximum.at(end_times, self.served.replica, self.served.last / 1e9)
        return end_times

    def generated_at(self, cut_s: float) -> Ints:
        """Tokens of each response at a moment: an engine's step gives each of its sequences one."""
        served, responses = self.served, self.responses
        remaining = responses.length - responses.generated
        cut_ns = round(cut_s * 1e9)
        if self.turns > 1:  # never interrupted
            return responses.length.copy()
        tokens = np.where(served.last <= cut_ns, remaining, 0)
        steps_by_replica = _step_ends(served)
        for index in np.flatnonzero((served.last > cut_ns) & (served.first <= cut_ns)).tolist():
            end_times = steps_by_replica[int(served.replica[index])]
            first, now, last = np.searchsorted(end_times, (served.first[index], cut_ns, served.last[index]))
            share = (now - first) / max(last - first, 1)
            tokens[index] = min(1 + int(share * (remaining[index] - 1)), remaining[index] - 1)
        return np.asarray(responses.generated + tokens)

    @property
    def preemptions(self) -> int:
        """Requests that lost their cache blocks to others."""
        return int(self.served.preemptions.sum())


def _step_ends(served: Served) -> dict[int, Ints]:
    replicas, end_times = served.steps[:, serving_state.LOG_REPLICA], served.steps[:, serving_state.LOG_END]
    return {int(replica): np.sort(end_times[replicas == replica]) for replica in np.unique(replicas)}


def generate(responses: Responses, job: RlJob, seed: int) -> Window:
    """Simulate the engines from now until all responses are generated.

    All requests are sent at once. A response that was interrupted is sent with the tokens that it has, which are
    computed again: new weights invalidate the cache. Responses to one prompt share its cached tokens on an engine.

    Raises:
        InputError: an engine takes no request of such a length.
    """
    engine, turns = job.engine, job.batch.turns
    block, count = engine.limits.block_size, turns.count
    parts = split(responses.length - responses.generated, count)  # [response, turn]
    own_prompt = responses.prompt - turns.read_tokens
    before = np.cumsum(parts, axis=1) - parts + turns.tool_tokens * np.arange(count)
    number = np.arange(len(responses) * count)
    is_first = number % count == 0
    is_consecutive = job.assignment == "consecutive" and count == 1
    fleet = Deployment(engine, job.replicas, "round-robin" if is_consecutive else "least-loaded").fleet(seed=seed)
    order = consecutive_order(len(number), len(fleet.replicas)) if is_consecutive else np.zeros_like(number)
    shared_blocks = np.repeat(own_prompt // block, count)  # of the prompt: the same for all responses to it
    first = np.concatenate([[0], np.cumsum(shared_blocks)]).astype(np.int64)
    within = np.arange(first[-1]) - np.repeat(first[:-1], shared_blocks)
    most_blocks = int(shared_blocks.max(initial=0)) + 1
    workload = make(
        f"{len(responses)} responses",
        order,  # ns, which decide between engines and are too short to count
        ((own_prompt + responses.generated)[:, None] + before).ravel(),
        parts.ravel(),
        stream=number // count,
        parent=np.where(is_first, -1, number - 1),
        delay_ns=turns.delays_ns(len(responses), seed),
        segment_first=first,
        segments=np.repeat(np.repeat(responses.group, count), shared_blocks) * most_blocks + within,
        segment_tokens=block,
        seed=seed,
        origin="presim.post_training.rollout",
    )
    served = simulate(workload, fleet)
    if not served.finished.all():
        refused = int(np.flatnonzero(~served.finished)[0]) // count
        raise InputError(
            f"an engine refuses {int((~served.finished).sum()):,} of {len(responses):,} responses, first one of "
            f"{int(responses.prompt[refused]):,} prompt and {int(responses.length[refused]):,} response tokens: its KV "
            f"cache holds {engine.limits.kv_tokens:,}; use a larger --rollout-tp or --gpu-memory-utilization"
        )
    return Window(responses, served.last[count - 1 :: count] / 1e9, served, len(fleet.replicas), count)


def consecutive_order(responses: int, engines: int) -> Ints:
    """The place of each response in the order in which a round-robin over engines gives each its part of the batch."""
    starts = [part[0] for part in np.array_split(np.arange(responses), engines) if len(part)]
    engine = np.searchsorted(starts, np.arange(responses), side="right") - 1
    return (np.arange(responses) - np.array(starts, np.int64)[engine]) * engines + engine
