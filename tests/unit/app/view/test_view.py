"""`presim view`: what the panes say is what the result says, and nobody else may ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from presim.app.view.opened import Opened, open_result
from presim.app.view.panes import Shown
from presim.app.view.server import application
from presim.app.view.tracks import KINDS, MOST_BOXES
from presim.cli import main
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import answer as answer_of_search
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.study import encode
from presim.planner.trials.trial import Trial
from presim.report import content
from presim.report import json as result_json
from presim.report.bars import SMALLEST_SHARE
from presim.trace.job import Job
from presim.trace.schema import Kind
from support import workloads
from support.searching import figures


@pytest.fixture(scope="module")
def shown() -> Shown:
    trace = workloads.llama_8b(steps=2, layers=3)
    return Shown("a job", evaluate(Job.of(trace), choose_cluster(gpu="h100-sxm", world_size=128)))


@pytest.fixture(scope="module")
def client(shown: Shown) -> TestClient:
    app = application(
        [shown, shown], lambda: b'{"results": []}', [Opened("s.json", {"serving": lambda: {"figures": {}}})]
    )
    return TestClient(app, base_url="http://localhost:8123")


def test_the_summary_has_the_figures_of_the_report(client: TestClient, shown: Shown) -> None:
    said = client.get("/api/jobs/0/summary").json()
    result = shown.evaluation.result
    assert [part["figure"] for part in said["time"]] == [
        part.figure for part in content.time_parts(result) if part.size > SMALLEST_SHARE * (result.step_time_s or 0)
    ]
    assert sum(part["share"] for part in said["time"]) == pytest.approx(1, abs=0.01)
    assert said["headline"][0]["label"] == "step time"
    assert said["ranks"] == [0]


def test_boxes_are_the_work_of_the_window(client: TestClient, shown: Shown) -> None:
    """All of it, with its times."""
    data = client.get("/api/jobs/0/timeline", params={"from": 0, "to": 1 << 60}).json()
    boxes = [box for track in data["ranks"][0]["tracks"] for box in track["boxes"]]
    trace, timeline = shown.evaluation.priced.trace, shown.evaluation.timeline
    device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    assert len(boxes) == int(device.sum()) <= MOST_BOXES * len(data["ranks"][0]["tracks"])
    assert sorted(box[0] for box in boxes) == sorted(timeline.start_ns[device].tolist())


def test_a_window_contains_work_that_overlaps_it(client: TestClient) -> None:
    whole = client.get("/api/jobs/0/timeline").json()
    first, last = whole["span"]
    middle = (first + last) // 2
    part = client.get("/api/jobs/0/timeline", params={"from": middle, "to": middle + 1000}).json()
    for track in part["ranks"][0]["tracks"]:
        assert all(start < middle + 1000 and end > middle for start, end, *_ in track["boxes"])


def test_shares_of_pixels_add_up_to_the_boxes(shown: Shown) -> None:
    """Many kernels are drawn as the share of each pixel, which loses no time."""
    first, last = shown.span_ns
    for track in shown.tracks[0]:
        edges = np.linspace(first, last, 301)
        shares = np.array(track.shares(edges))
        spent = shares.sum(axis=0) * (last - first) / 300
        inside = np.clip(track.end, first, last) - np.clip(track.start, first, last)
        expected = [inside[track.kind == kind].sum() for kind in range(len(KINDS))]
        assert spent == pytest.approx(expected, abs=(last - first) * 0.006)


def test_memory_and_roofline_have_the_result_s_figures(client: TestClient, shown: Shown) -> None:
    held = client.get("/api/jobs/0/memory").json()
    assert held["device"] == shown.evaluation.result.memory.device_total_bytes
    peaks = shown.evaluation.result.memory.modules
    assert [row["peak_bytes"] for row in held["modules"]] == [peak.peak_bytes for peak in peaks[: len(held["modules"])]]
    roof = client.get("/api/jobs/0/roofline").json()
    fastest = max(level["bytes_per_s"] for level in roof["levels"])
    assert all(0 < point["bytes_per_s"] <= fastest * 1.001 for point in roof["points"])
    gpu = shown.evaluation.cluster.gpu
    assert {point["level"] for point in roof["points"] if point["bytes_per_s"] > gpu.memory_bytes_per_s} <= {"L2 cache"}
    assert roof["points"]
    assert all(0 < point["rate"] <= roof["peak"] * 1.001 for point in roof["points"] if point["name"] == "gemm")


def test_collectives_are_those_of_the_result(client: TestClient, shown: Shown) -> None:
    rows = client.get("/api/jobs/0/communication").json()["collectives"]
    assert [row["kind"] for row in rows] == [row.kind for row in shown.evaluation.result.collectives]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/api/jobs/7/summary", "there are 2 jobs, numbered from 0, and no job 7"),
        (
            "/api/jobs/0/nothing",
            "there is no pane 'nothing'; use one of summary, memory, communication, power, roofline, pipeline, network",
        ),
        ("/api/jobs/0/timeline?ranks=9", "rank 9 was not simulated; there are [0]"),
        ("/api/jobs/0/timeline?from=x", "from=x is not a number"),
        ("/api/jobs/0/timeline?from=9&to=3", "the window ends at 3 ns, before it begins at 9 ns"),
    ],
)
def test_files_that_cannot_be_shown_are_refused_in_a_sentence(client: TestClient, path: str, sentence: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (400, {"error": sentence})


def test_pages_of_other_sites_are_refused(client: TestClient) -> None:
    assert client.get("/api/jobs", headers={"origin": "http://elsewhere.example"}).status_code == 403
    assert client.get("/api/jobs", headers={"origin": "http://localhost:8123"}).status_code == 200
    assert client.get("/api/jobs", headers={"host": "elsewhere.example"}).status_code == 400


def test_only_files_of_the_page_are_served(client: TestClient) -> None:
    assert client.get("/static/view.js").status_code == 200
    assert client.get("/static/../server.py").status_code == 404
    assert client.get("/static/%2e%2e/server.py").status_code == 404


def test_the_page_asks_for_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    for file in ("", "static/view.js", "static/timeline.js", "static/view.css", "static/uPlot.min.css"):
        assert "http://" not in client.get(f"/{file}").text
        assert "https://" not in client.get(f"/{file}").text


def test_a_folder_without_a_job_is_refused(tmp_path, capsysbinary) -> None:  # type: ignore[no-untyped-def]
    assert main.run(["view", str(tmp_path), "--no-open"]) == 2
    assert capsysbinary.readouterr().err.count(b"\n") == 1


def test_the_overview_has_a_letter_for_each_pixel(client: TestClient, shown: Shown) -> None:
    """Letters of compute and communication take about the shares that the result says."""
    data = client.get("/api/jobs/0/overview", params={"pixels": 2000}).json()
    (row,) = [one["row"] for one in data["ranks"]]
    assert len(row) == 2000
    assert set(row) <= set("0123456.")
    time, step = shown.evaluation.result.time, shown.evaluation.result.step_time_s
    assert step is not None
    assert sum(row.count(letter) for letter in "01234") / 2000 == pytest.approx(time.compute_s / step, abs=0.05)
    assert data["left_out"] == 0


def test_power_over_time_has_the_mean_of_the_energy(client: TestClient, shown: Shown) -> None:
    data = client.get("/api/jobs/0/power").json()
    found = shown.evaluation.result.energy
    assert found is not None
    assert len(data["watts"]) == len(data["time_s"]) == 500
    assert np.mean(data["watts"]) == pytest.approx(found.watts, rel=0.05)
    assert max(data["watts"]) <= found.limit_watts
    assert data["energy"]["joules"] == found.joules


def test_results_are_listed_and_served(client: TestClient) -> None:
    assert client.get("/api/jobs").json()["results"] == [{"label": "s.json", "panes": ["serving"]}]
    assert client.get("/api/results/0/serving").json() == {"figures": {}}
    refused = client.get("/api/results/1/serving")
    assert (refused.status_code, refused.json()) == (
        400,
        {"error": "there are 1 results, numbered from 0, and no result 1"},
    )


def test_a_search_has_its_best_points_and_fates(tmp_path: Path) -> None:
    request = SearchRequest(subject="m", space=Space({"tensor": (2, 3)}, {}), objectives=[OBJECTIVES["step_time"]])
    trials = [
        Trial(number=0, point={"tensor": 2}, fate="priced", figures=figures(1.0)),
        Trial(number=1, point={"tensor": 3}, fate="illegal"),
    ]
    (tmp_path / "q.json").write_bytes(encode(answer_of_search(request, trials)))
    opened = open_result(tmp_path / "q.json")
    assert list(opened.panes) == ["search", "report"]
    pane = opened.panes["search"]()
    assert pane["fates"] == {"priced": 1, "illegal": 1}
    assert pane["best"] == pane["points"]
    assert [(point["point"], point["figures"]["step_time_s"]) for point in pane["best"]] == [({"tensor": 2}, 1.0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "is not a result of presim"),
        ("[]", "is not a result of presim"),
        ("[", "is no JSON"),
        ('{"schema": "presim-nothing/1"}', "has the schema 'presim-nothing/1', which this presim does not know"),
        ('{"schema": 7}', "has the schema 7"),
        ('{"kind": "future", "schema_version": 1}', "is of the kind 'future', which this presim does not know"),
        ('{"trials": [], "best": [], "varied": {}, "schema_version": -1}', "has the schema_version -1"),
        ('{"trials": [], "best": [], "varied": {}, "schema_version": 1}', "is a damaged result of `presim search"),
        ("<!DOCTYPE html><html>", "is an HTML page; open it in a browser"),
        ("[" * 100_000, "is no JSON"),
        ("\x00", "is no JSON"),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(InputError) as caught:
        open_result(tmp_path / "q.json")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


NUMBERS = (
    "7",
    "-1",
    "9" * 5000,
    "1e9",
    "0x0",
    "1_0",
    "٣",
    "%00",
    "%F0%9F%98%80",
    "..",
    "0.0",
    "+0",
    "%20",
    "nan",
    "%2e%2e",
)
LONG = "x" * 20_000


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("path", ["jobs/{}/summary", "jobs/{}/timeline", "jobs/{}/overview", "results/{}/report"])
def test_numbers_of_nothing_are_refused_in_a_sentence(client: TestClient, path: str, number: str) -> None:
    refused_in_a_sentence(client, f"/api/{path.format(number)}")


@pytest.mark.parametrize(
    "path",
    [
        f"/api/jobs/0/{LONG}",
        "/api/jobs/0/%00",
        "/api/jobs/0/a/b/c",
        f"/api/{LONG}",
        "/api/results/0/%ff",
        f"/static/{LONG}",
        "/static/%00",
        "/static/a%00.js",
        "/static/%ff%fe",
        "/nothing",
        *(f"/api/jobs/0/timeline?{name}={value}" for name in ("from", "to", "ranks", "pixels") for value in (
            "9" * 5000, "1e400", "nan", "-inf", "%00", "%F0%9F%98%80", "9" * 30, "1e300")),
        "/api/jobs/0/timeline?ranks=" + ",".join(map(str, range(5000))),
        f"/api/jobs/0/overview?pixels={LONG}",
    ],
)  # fmt: skip
def test_hostile_addresses_are_refused_in_a_sentence(client: TestClient, path: str) -> None:
    refused_in_a_sentence(client, path)


def refused_in_a_sentence(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    sentence = answer.json()["error"]
    assert len(sentence) < 300
    assert "\n" not in sentence


@pytest.mark.parametrize("query", ["from=-4e18&to=4e18", "pixels=0", "pixels=-5", "from=-1&to=1", "ranks=,,"])
def test_windows_beyond_the_step_are_drawn(client: TestClient, query: str) -> None:
    assert client.get(f"/api/jobs/0/timeline?{query}").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(client: TestClient, method: str) -> None:
    answer = client.request(method, "/api/jobs")
    assert answer.status_code == 405
    assert "method not allowed" in answer.json()["error"]


def test_work_is_found_by_name_or_module_one_after_another(client: TestClient, shown: Shown) -> None:
    """In any case of letters; behind the last comes the first; a name that nothing has is counted as none."""
    rank = min(shown.tracks)
    starts = sorted(int(start) for track in shown.tracks[rank] for start in track.start[track._has("all_gather")])
    first = client.get("/api/jobs/0/find?text=ALL_gather").json()
    assert (first["count"], first["rank"], first["from"]) == (len(starts), rank, starts[0])
    behind = client.get(f"/api/jobs/0/find?text=all_gather&after={first['from']}").json()
    assert behind["from"] == next(start for start in starts if start > starts[0])
    assert client.get(f"/api/jobs/0/find?text=all_gather&after={starts[-1]}").json()["from"] == starts[0]
    assert client.get("/api/jobs/0/find?text=mlp").json()["count"] > 0
    assert client.get("/api/jobs/0/find?text=nothing").json() == {
        "count": 0,
        "rank": None,
        "track": "",
        "from": None,
        "to": None,
    }
    assert client.get("/api/jobs/0/find?text=").status_code == 400
    assert client.get("/api/jobs/0/find?text=gemm&ranks=999999").status_code == 400


def test_kernels_of_a_roofline_have_their_shape_and_module(client: TestClient, shown: Shown) -> None:
    roof = client.get("/api/jobs/0/roofline").json()
    fastest = max(level["bytes_per_s"] for level in roof["levels"])
    assert all(0 < point["bytes_per_s"] <= fastest * 1.001 for point in roof["points"])
    gpu = shown.evaluation.cluster.gpu
    assert {point["level"] for point in roof["points"] if point["bytes_per_s"] > gpu.memory_bytes_per_s} <= {"L2 cache"}
    assert roof["levels"][0] == {"name": "memory", "bytes_per_s": gpu.memory_bytes_per_s, "origin": "datasheet"}
    products = [point for point in roof["points"] if point["name"] == "gemm"]
    assert all(len(point["shape"].split(" x ")) >= 3 for point in products)
    assert not [point["module"] for point in products if ".0." in point["module"]]


def test_threads_may_read_their_first_result_at_once(shown: Shown, tmp_path: Path) -> None:
    """In a new process, in which no type of results was used before: it ended with a segmentation fault."""
    result_json.write(shown.evaluation.result, tmp_path / "a.json")
    program = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from presim.studies.saved_results.read_result import read\n"
        "sys.setswitchinterval(1e-6)\n"
        "gate = threading.Barrier(4)\n"
        "def look():\n"
        "    gate.wait()\n"
        "    read(Path(sys.argv[1]))\n"
        "threads = [threading.Thread(target=look) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.json")]
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
