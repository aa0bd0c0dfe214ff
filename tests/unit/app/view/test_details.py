"""What the timeline says of a piece of work and of a range, and its arrows."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from golden.scenarios import kernel
from presim.app.view.arrows import MOST_ARROWS
from presim.app.view.panes import Shown
from presim.app.view.server import application
from presim.app.view.tracks import KINDS
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective

MESSAGES = 3


def stage(rank: int) -> Trace:
    """Rank 0 computes and sends on another stream, rank 1 receives and computes; ranks 3 and 7 are their names."""
    groups = (Group("pipeline", (3, 7), 2),)
    build = TraceBuilder(
        Manifest(world_size=8, rank=(3, 7)[rank], gpu="h100-sxm", gpus_per_node=8, script="", groups=groups)
    )
    message = Collective(("send", "recv")[rank], 1 << 24, "uint8", group=0, peer=1 - rank)
    first, second = ((kernel(1000), message), (message, kernel(1000)))[rank]
    for _ in range(MESSAGES):
        build.work(first, stream=0)
        recording = build.record(stream=0)
        build.wait(recording, stream=1)
        build.work(second, stream=1)
    return build.trace()


@pytest.fixture(scope="module")
def shown() -> Shown:
    return Shown("two stages", evaluate(Job((stage(0), stage(1))), choose_cluster(gpu="h100-sxm", world_size=8)))


@pytest.fixture(scope="module")
def client(shown: Shown) -> TestClient:
    return TestClient(application([shown]), base_url="http://localhost:8123")


def ask(client: TestClient, question: str) -> Any:
    answer = client.get(f"/api/jobs/0/{question}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_message_has_an_arrow_from_its_send_to_its_receive(client: TestClient, shown: Shown) -> None:
    begin, end = 0, 1 << 60
    answer = ask(client, f"arrows?ranks=3,7&from={begin}&to={end}")
    messages = [arrow for arrow in answer["arrows"] if arrow["kind"] == "message"]
    assert answer["count"] == len(answer["arrows"]) <= MOST_ARROWS
    assert [(arrow["from"][0], arrow["from"][2], arrow["to"][0], arrow["to"][2]) for arrow in messages] == [
        (3, number, 7, number) for number in range(MESSAGES)
    ]
    for arrow in messages:
        rank, track, index, moment = arrow["to"]
        assert shown.tracks[rank][track].end[index] == moment


def test_arrows_to_ranks_that_are_not_drawn_are_left_out(client: TestClient) -> None:
    kinds = {arrow["kind"] for arrow in ask(client, f"arrows?ranks=3&from=0&to={1 << 60}")["arrows"]}
    assert kinds == {"dependency"}


def test_work_says_its_shape_its_peer_and_where_its_arrows_lead(client: TestClient) -> None:
    """The other side of a message is named as a rank of the job, not by its place in the group."""
    arrow = ask(client, f"arrows?ranks=3,7&from=0&to={1 << 60}")["arrows"][-1]
    rank, track, index, _ = arrow["from"]
    work = ask(client, f"work?rank={rank}&track={track}&index={index}")
    assert (work["name"], work["rank"], work["details"]["bytes"]) == ("send", 3, 1 << 24)
    assert work["details"]["peer"] == "rank 7"
    assert arrow in work["arrows"]
    assert ask(client, f"work?rank={rank}&track={track}&at={work['from']}") == work


def test_sums_of_a_range_are_the_work_within_it(client: TestClient, shown: Shown) -> None:
    """Work that reaches out of the range counts by its part inside; the sums of halves are that of the whole."""
    begin, end = shown.span_ns
    middle = (begin + end) // 2
    parts = [ask(client, f"sums?ranks=3,7&from={first}&to={last}") for first, last in ((begin, middle), (middle, end))]
    total = ask(client, f"sums?ranks=3,7&from={begin}&to={end}")
    assert total["kinds"] == list(KINDS)
    for number, row in enumerate(total["tracks"]):
        halves = [part["tracks"][number]["ns"] for part in parts]
        assert [first + second for first, second in zip(*halves)] == pytest.approx(row["ns"])
    assert sum(entry["ns"] for entry in total["names"]) == pytest.approx(sum(sum(row["ns"]) for row in total["tracks"]))
    sends = next(entry for entry in total["names"] if entry["name"] == "send")
    assert sends["count"] == MESSAGES


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("work?rank=5", "rank 5 was not simulated; there are [3, 7]"),
        ("work?rank=3&track=9", "rank 3 has 2 streams, numbered from 0, and no stream 9"),
        ("work?rank=3&index=99", "pieces of work, and no number 99"),
        ("sums?ranks=3&from=9&to=9", "the range ends at 9 ns, before it begins at 9 ns"),
        ("sums?ranks=5", "rank 5 was not simulated; there are [3, 7]"),
    ],
)
def test_questions_without_an_answer_are_refused_in_a_sentence(
    client: TestClient, question: str, sentence: str
) -> None:
    answer = client.get(f"/api/jobs/0/{question}")
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]
