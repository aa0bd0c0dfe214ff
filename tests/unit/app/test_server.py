"""`presim app`: who may ask, what forms hold, and that a question's result is what its command writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import presim
from presim.app.api import TOKEN
from presim.app.questions import QUESTIONS, FormQuestion
from presim.app.server import application
from presim.app.state import AppState
from presim.app.words import check
from presim.app.words import words as words_of_form
from presim.cli import main
from presim.cli.declared import declarations, errors_of
from presim.hardware import catalogue
from presim.report import json
from presim.trace import job_store
from support import workloads

VALUES = {"model": "llama3-8b", "gpu": "h100-sxm", "nodes": "2", "gpus_per_node": "8", "sequence": "2048"}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppState]:
    state = AppState(tmp_path_factory.mktemp("project"))
    yield state
    state.close()


@pytest.fixture(scope="module")
def client(state: AppState) -> TestClient:
    return TestClient(application(state, "secret"), base_url="http://localhost:8123", headers={TOKEN: "secret"})


def until(condition: Callable[[], Any], seconds: float = 200) -> Any:
    """What a condition is worth once it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end
    return value


def finished(client: TestClient, name: str) -> dict[str, Any]:
    def job() -> dict[str, Any] | None:
        answer: dict[str, Any] = client.get(f"/api/jobs/{name}").json()
        return answer if answer["state"] not in ("queued", "running") else None

    ended: dict[str, Any] = until(job)
    return ended


@pytest.fixture(scope="module")
def composed(client: TestClient) -> str:
    name: str = client.post("/api/questions/compose/start", json=VALUES).json()["name"]
    assert finished(client, name)["state"] == "done"
    return name


@pytest.mark.parametrize("headers", [{TOKEN: ""}, {TOKEN: "secreT"}, {TOKEN: "é".encode("latin-1").decode("latin-1")}])
def test_a_question_without_the_token_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/api/project", headers={name: value.encode("latin-1") for name, value in headers.items()})  # type: ignore[arg-type]
    assert (answer.status_code, "token" in answer.json()["error"]) == (403, True)


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"origin": "http://localhost:9"}])
def test_pages_of_other_sites_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/api/questions/compose/start", json=VALUES, headers=headers).status_code == 403


def test_another_name_of_the_machine_is_refused(client: TestClient) -> None:
    assert client.get("/api/project", headers={"host": "evil.example"}).status_code == 400


def test_the_page_itself_needs_no_token_and_loads_nothing_else(client: TestClient) -> None:
    answer = client.get("/", headers={TOKEN: ""})
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "http" not in answer.text.replace("http-equiv", "")


@pytest.mark.parametrize("question", [question.name for question in QUESTIONS])
def test_a_form_has_every_option_of_its_verb(client: TestClient, question: str) -> None:
    """Those that a question names exist, and those that it leaves out are outputs and servers that it names."""
    form = client.get(f"/api/questions/{question}").json()
    fields = [field["name"] for group in form["groups"] for field in group["fields"]]
    fields += [field["name"] for field in form["other_fields"]]
    asked = next(known for known in QUESTIONS if known.name == question)
    declared = {field.name for field in declarations(question)}
    assert sorted([*fields, *declared.intersection(asked.omitted)]) == sorted(declared)
    named = {name for _, names in asked.groups for name in names} | set(dict(asked.start)) | set(dict(asked.hints))
    assert (named | {change.field for change in asked.changes} | set(asked.needs)) <= set(fields)


@pytest.mark.torch_cuda
def test_a_result_is_what_its_command_writes(
    client: TestClient, state: AppState, composed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command beside it gives the same bytes, and so does the Python call."""
    shown = client.get(f"/api/results/{composed}").json()
    assert shown["values"] == VALUES
    assert shown["summary"]["cluster"] == "2 x 8 NVIDIA H100 80GB HBM3"
    written = (state.project.folder / f"{composed}.json").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert main.run([*shown["command"].split()[1:], "-q"]) == 0
    assert (tmp_path / f"{composed}.json").read_bytes() == written
    scope: dict[str, Any] = {}
    exec(client.post("/api/questions/compose/check", json=VALUES).json()["python"], scope)
    assert json.encode(scope["result"]) == written


@pytest.mark.torch_cuda
def test_figures_are_those_of_the_result(client: TestClient, state: AppState, composed: str) -> None:
    figures = {figure["key"]: figure for figure in client.get(f"/api/results/{composed}").json()["summary"]["figures"]}
    result = json.read(state.project.folder / f"{composed}.json")
    assert figures["step"]["number"] == result.step_time_s
    assert figures["mfu"]["number"] == result.mfu
    assert figures["tokens"]["number"] == result.throughput.tokens_per_s


@pytest.mark.torch_cuda
def test_a_comparison_is_that_of_the_command_line(client: TestClient, state: AppState, composed: str) -> None:
    """Part by part, under the names of the results; of others than steps there is none."""
    name = client.post("/api/questions/compose/start", json={**VALUES, "bandwidth": "inter=0.25"}).json()["name"]
    assert finished(client, name)["state"] == "done"
    blocks = client.get(f"/api/comparisons/{composed},{name}").json()
    headings = [block["name"] for block in blocks if block["type"] == "heading"]
    assert f"{composed} → {name}" in headings
    assert "Exposed communication" in headings
    assert client.get(f"/api/comparisons/{composed}").json() == []


@pytest.mark.torch_cuda
def test_a_change_answers_without_a_result(client: TestClient, state: AppState, composed: str) -> None:
    files = sorted(path.name for path in state.project.folder.iterdir())
    base = client.get(f"/api/results/{composed}").json()["summary"]["figures"]
    slower = client.post("/api/questions/compose/change", json={**VALUES, "bandwidth": "inter=0.25"}).json()["figures"]
    assert slower[0]["number"] > base[0]["number"]
    assert client.post("/api/questions/compose/change", json=VALUES).json()["figures"] == base
    assert sorted(path.name for path in state.project.folder.iterdir()) == files


@pytest.mark.torch_cuda  # a plan is checked against the model's graph
@pytest.mark.parametrize(
    ("values", "option", "sentence"),
    [
        ({"nodes": "x"}, "nodes", "'x' is not a whole number; a number of nodes from 1 to 1,048,576 is expected"),
        ({"tensor": "3"}, "tensor", "tensor = 3 does not divide 16 GPUs (16 % 3 = 1); degrees that do: 1, 2, 4, 8"),
        ({"sequence": ""}, "sequence", "needed: Sequence length: tokens per sample."),
    ],
)
def test_a_bad_value_is_named_beside_its_field(
    client: TestClient, values: dict[str, str], option: str, sentence: str
) -> None:
    answer = client.post("/api/questions/compose/change", json={**VALUES, **values})
    assert (answer.status_code, answer.json()["errors"]) == (400, {option: sentence})


def test_a_job_that_fails_says_why_and_leaves_no_result(client: TestClient, state: AppState) -> None:
    name = client.post("/api/questions/compose/start", json={**VALUES, "gpu": "h100-sxmx"}).json()["name"]
    job = finished(client, name)
    assert (job["state"], job["exit_code"]) == ("failed", 2)
    assert job["errors"]["gpu"].startswith("unknown GPU 'h100-sxmx'")
    assert client.get(f"/api/results/{name}").status_code == 400
    assert client.delete(f"/api/results/{name}").status_code == 200
    assert not list(state.project.folder.glob(f"{name}.*"))


@pytest.mark.parametrize("name", ["..", "../secret", ".hidden", "a/b", "a" * 200, "ä"])
def test_no_file_outside_the_folder_is_reached(client: TestClient, name: str) -> None:
    # A file may be put below a folder of the folder, as those of a saved job are.
    for method, path in (("GET", "results"), ("DELETE", "results"), ("PUT", "files"))[: 2 if name == "a/b" else 3]:
        assert client.request(method, f"/api/{path}/{name}", content=b"x").status_code in (400, 404, 405)


def test_an_uploaded_file_is_not_overwritten(client: TestClient, state: AppState) -> None:
    assert client.put("/api/files/config.json", content=b"{}").status_code == 200
    answer = client.put("/api/files/config.json", content=b"other")
    assert answer.json()["error"].startswith("config.json is in the folder already")
    assert (state.project.folder / "config.json").read_bytes() == b"{}"
    row = next(row for row in client.get("/api/project").json()["results"] if row["name"] == "config")
    assert "is not a result of presim" in row["problem"]


def test_files_of_a_dropped_folder_stay_together_and_within_the_project(
    client: TestClient, state: AppState, tmp_path: Path
) -> None:
    assert client.put("/api/files/dropped/job.json", content=b"{}").status_code == 200
    assert (state.project.folder / "dropped" / "job.json").read_bytes() == b"{}"
    (state.project.folder / "elsewhere").symlink_to(tmp_path)
    for name in ("dropped/..%2fx", "dropped/.x", "a/b/c/d", "dropped//x", "elsewhere/x"):
        assert client.put(f"/api/files/{name}", content=b"x").status_code in (400, 404), name
    assert not list(tmp_path.iterdir())
    (state.project.folder / "elsewhere").unlink()


def test_a_dropped_config_is_a_model_and_no_broken_result(client: TestClient) -> None:
    assert client.put("/api/files/mine.json", content=b'{"model_type": "llama"}').status_code == 200
    assert "mine" not in [row["name"] for row in client.get("/api/project").json()["results"]]
    assert client.get("/api/questions/compose").json()["suggestions"]["model"][0] == "mine.json"


def test_a_check_draws_the_cluster_of_the_values(client: TestClient, state: AppState) -> None:
    """Also one of a file of the folder; values that describe none have no drawing, and the field says why."""
    cluster = client.post("/api/questions/compose/check", json={**VALUES, "nodes": "12"}).json()["cluster"]
    assert cluster["facts"][0].startswith("12 x 8 NVIDIA H100 80GB HBM3: 79.2 GiB, 3.35 TB/s, 989 TFLOP/s")
    assert cluster["markup"].count('class="gpu"') == 4 * 8
    assert "and 8 more nodes" in cluster["markup"]
    (state.project.folder / "mine.toml").write_text('gpu = "b200"\nnodes = 2\n')
    drawn = client.post("/api/questions/compose/check", json={"cluster": "mine.toml"}).json()["cluster"]
    assert drawn["facts"][0].startswith("2 x 8 NVIDIA B200")
    for values in ({"gpu": "b200x"}, {"gpu": "b200", "nodes": "x"}, {"cluster": "none.toml"}, {}):
        none = client.post("/api/questions/compose/check", json=values).json()
        assert none["cluster"] == {"markup": "", "facts": []}


def test_scripts_are_started_only_where_the_app_allows_it(client: TestClient, tmp_path: Path) -> None:
    """Neither the question of a script nor a command among the words of a search; with --allow-scripts it is a form."""
    values = {"script": "train.py", "gpu": "h100-sxm"}
    for action in ("start", "change"):
        answer = client.post(f"/api/questions/run/{action}", json=values)
        assert "unless the app was started with `presim app --allow-scripts`" in answer.json()["error"]
    assert client.get("/api/questions/run").status_code == 400
    assert "run" not in [question["name"] for question in client.get("/api/project").json()["questions"]]
    for words in ("-- python train.py", "llama3-8b -- python train.py"):
        answer = client.post("/api/questions/search/start", json={"words": words, "gpu": "b200", "sequence": "1"})
        assert "a command is started from the command line only" in answer.json()["errors"]["words"]
    state = AppState(tmp_path, allows_scripts=True)
    assert state.form("run").title == "Capture a script"
    assert state.overview().questions[-1].name == "run"
    checked = check("run", {**values, "args": "--batch 4"}, tmp_path)
    assert checked.command == "presim run --gpu h100-sxm train.py --batch 4"
    assert words_of_form("run", {**values, "args": "--out x"}, "run-1.json") == [
        *("run", "--gpu", "h100-sxm", "--json", "run-1.json", "train.py", "--out", "x")
    ]
    state.close()


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"model": 3}', b'{"model": ["a"]}'])
def test_values_that_are_no_form_are_refused(client: TestClient, body: bytes) -> None:
    assert client.post("/api/questions/compose/start", content=body).status_code == 400


def test_asking_python_for_a_verb_without_result_is_refused() -> None:
    with pytest.raises(presim.errors.InputError, match="writes no result"):
        presim.ask("view", "job")
    with pytest.raises(presim.errors.InputError, match="has no option 'sequences'"):
        presim.ask("compose", "llama3-8b", sequences=4096)


def test_a_slip_in_a_python_question_is_answered_with_the_nearest_name() -> None:
    """A verb or an option; an option that names the file which the call reads itself; a verb with a switch --json."""
    with pytest.raises(presim.errors.InputError, match=r"^no verb 'trainng'; did you mean training\?$"):
        presim.ask("trainng", "job")
    with pytest.raises(presim.errors.InputError, match=r"^`presim rl` has no option 'sample'; did you mean samples\b"):
        presim.ask("rl", "qwen3-8b", sample=4)
    with pytest.raises(presim.errors.InputError, match=r"^leave out json: presim\.ask returns what"):
        presim.ask("rl", "qwen3-8b", json="x.json")
    with pytest.raises(presim.errors.InputError, match="writes no result"):
        presim.ask("view")


def test_a_job_that_is_half_written_says_so(client: TestClient, state: AppState) -> None:
    """In the list, where it is not offered to be simulated, and on the page of its timelines, as a sentence."""
    folders = {name: state.project.folder / name for name in ("whole", "cut", "b<b>")}
    for folder in folders.values():
        job_store.save([workloads.llama_8b(steps=1, layers=1)], folder)
    next(folders["cut"].glob("*.parquet")).write_bytes(b"PAR1")
    problems = {line["name"]: line["problem"] for line in client.get("/api/project").json()["saved_jobs"]}
    assert problems["whole"] == ""
    assert "is cut short (4 of " in problems["cut"]
    assert problems["b<b>"].startswith("rename the folder b<b>: ")
    assert client.get("/api/questions/simulate").json()["suggestions"]["directory"] == ["whole"]
    answer = client.get("/view/cut/", headers={"accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "is cut short" in answer.text


@pytest.mark.torch_cuda
def test_timelines_of_a_saved_job_are_those_of_view(client: TestClient, state: AppState) -> None:
    """Its page, and what the page asks for with the cookie alone; nobody sees them without."""
    name = client.post("/api/questions/compose/start", json={**VALUES, "save": "job"}).json()["name"]
    assert finished(client, name)["state"] == "done"
    assert {"name": "job", "problem": ""} in client.get("/api/project").json()["saved_jobs"]
    stranger = TestClient(client.app, base_url="http://localhost:8123")
    assert stranger.get("/view/job/").status_code == 403
    assert stranger.get("/view/job/?token=secret").status_code == 200
    summary = stranger.get("/view/job/api/jobs/0/summary").json()
    figures = client.get(f"/api/results/{name}").json()["summary"]["figures"]
    assert summary["headline"][0]["value"] == figures[0]["text"]
    assert stranger.get("/view/job/static/view.js").status_code == 200
    assert stranger.get("/view/other/").status_code == 400
    assert stranger.get("/api/project").status_code == 403


@pytest.mark.torch_cuda
def test_a_composed_result_has_timelines_without_a_saved_job(
    client: TestClient, state: AppState, composed: str
) -> None:
    """It is composed once more; a result that the composed job does not have is refused, and nothing is left behind."""
    before = sorted(path.name for path in state.project.folder.iterdir())
    assert client.get(f"/api/results/{composed}").json()["has_timelines"]
    summary = client.get(f"/view/{composed}/api/jobs/0/summary").json()
    figures = client.get(f"/api/results/{composed}").json()["summary"]["figures"]
    assert summary["headline"][0]["value"] == figures[0]["text"]
    assert sorted(path.name for path in state.project.folder.iterdir()) == before
    assert client.get("/view/nothing/").json()["error"].startswith("there is no saved job and no result nothing in ")


@pytest.mark.parametrize("question", [question for question in QUESTIONS if question.changes], ids=lambda one: one.name)
def test_every_word_of_a_control_is_a_value_of_its_option(question: FormQuestion) -> None:
    """As the verb's declaration checks it, and GPUs by the catalogue."""
    for change in question.changes:
        for word in change.words:
            values = {change.field: change.pattern.replace("%", word)}
            assert change.field not in errors_of(question.name, values)
            assert change.field != "gpu" or catalogue.gpu(word).id == word
