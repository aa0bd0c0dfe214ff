"""Every kind of result: `presim report` prints what the verb printed, pages and `presim view` have the same tables."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import jsonschema
import pytest
from starlette.testclient import TestClient

from presim.app.view.opened import open_result
from presim.app.view.server import application
from presim.errors import InputError
from presim.report.json import json_schema
from presim.studies.saved_results.kinds import KINDS, ResultKind
from presim.studies.saved_results.read_result import read
from presim.studies.saved_results.show_result import page
from support import saved_results
from support.saved_results import Sample

BY_NAME = {kind.name: kind for kind in KINDS}
TABLES = ("validation",)  # CSV, without a place for a name
JSONS = [name for name in BY_NAME if name not in TABLES]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    return saved_results.samples(tmp_path_factory.mktemp("results"))


def test_every_kind_has_a_sample(samples: dict[str, Sample]) -> None:
    assert samples.keys() == BY_NAME.keys()


@pytest.mark.parametrize("name", BY_NAME)
def test_report_prints_what_the_verb_printed(samples: dict[str, Sample], name: str) -> None:
    assert samples[name].printed
    assert saved_results.run(["report", str(samples[name].path)]) == samples[name].printed


@pytest.mark.parametrize("name", JSONS)
def test_a_file_names_its_kind_and_version(samples: dict[str, Sample], name: str) -> None:
    kind, content = BY_NAME[name], json.loads(samples[name].path.read_text())
    if "schema" in content:
        assert content["schema"] == f"presim-{name}/{kind.version}"
    else:
        assert (content["kind"], content["schema_version"]) == (name, kind.version)
    assert read(samples[name].path).kind is kind


@pytest.mark.parametrize(
    "name",
    ["run", "comparison", "explanation", "training", "gate", "search", "serving", "deployments", "rl", "network"],
)
def test_python_shows_a_result_in_a_line(samples: dict[str, Sample], name: str) -> None:
    """`presim.search(…)` and others, in a console."""
    content = read(samples[name].path).content
    shown = repr(content)
    assert shown.startswith(f"<{type(content).__name__} ")
    assert len(shown) < 300
    assert "\n" not in shown


@pytest.mark.parametrize("name", ["run", "serving", "deployments"])
def test_the_published_schema_describes_the_file(samples: dict[str, Sample], name: str) -> None:
    """By one variant, the type of this kind; a field of another type is refused."""
    validator = jsonschema.Draft202012Validator(json.loads(json_schema()))
    content = json.loads(samples[name].path.read_text())
    assert not [*validator.iter_errors(content)]
    assert [*validator.iter_errors({**content, BY_NAME[name].fields.split()[0]: 5.5})]


@pytest.mark.parametrize("name", BY_NAME)
def test_the_page_and_the_view_have_the_words_of_the_report(samples: dict[str, Sample], name: str) -> None:
    """Every word of the terminal's tables, whatever the page adds."""
    said = words(samples[name].printed)  # parts of words where lines were wrapped
    found = read(samples[name].path)
    assert "<!doctype html>" in page(found)
    client = TestClient(application([], results=[open_result(found.path)]), base_url="http://localhost")
    (listed,) = client.get("/api/jobs").json()["results"]
    assert listed["panes"][-1] == "report"
    for pane in listed["panes"]:
        answer = client.get(f"/api/results/0/{pane}")
        assert answer.status_code == 200
    assert not {word for word in said if word not in text_of(answer.json())}
    if not BY_NAME[name].page:
        seen = html.unescape(re.sub(r"<[^>]*>", " ", page(found)))
        assert not {word for word in said if word not in seen}


@pytest.mark.parametrize("name", BY_NAME)
def test_report_writes_a_result_as_json_that_it_reads(samples: dict[str, Sample], name: str, tmp_path: Path) -> None:
    """In this version's schema, whatever version wrote it."""
    path = tmp_path / samples[name].path.name
    saved_results.run(["report", str(samples[name].path), "--json", str(path)])
    assert saved_results.run(["report", str(path)]) == samples[name].printed


def words(text: str) -> set[str]:
    """Its words and numbers, without the marks that draw bars."""
    plain = "\n".join(line for line in text.splitlines() if not re.fullmatch(r" *([a-z?.])\1{3,}[a-z?.]*", line))
    return set(re.findall(r"[\w.%]+", plain)) - {"presim"}


def text_of(value: object) -> str:
    """All texts in JSON."""
    if isinstance(value, dict):
        return " ".join(map(text_of, value.values()))
    return " ".join(map(text_of, value)) if isinstance(value, list) else str(value)


def without_name(content: dict[str, object], kind: ResultKind) -> object:
    """As the last presim wrote a result: structs with a version alone, the others without any name."""
    if kind.name in ("serving", "prefill", "rl", "deployments", "serving-calibration", "lines"):
        return content  # these had a schema
    names = ("schema",) if "schema" in content else ("kind",)
    nameless = {key: value for key, value in content.items() if key not in names}
    return nameless["modules"] if kind.name == "graph-summary" else nameless


@pytest.mark.parametrize("name", JSONS)
def test_results_without_a_name_are_read(samples: dict[str, Sample], name: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(without_name(json.loads(samples[name].path.read_text()), BY_NAME[name])))
    assert read(path).kind is BY_NAME[name]
    assert saved_results.run(["report", str(path)]) == samples[name].printed


@pytest.mark.parametrize("name", JSONS)
def test_other_versions_and_damaged_results_are_refused_in_a_sentence(
    samples: dict[str, Sample], name: str, tmp_path: Path
) -> None:
    path, kind, content = tmp_path / "other.json", BY_NAME[name], json.loads(samples[name].path.read_text())

    def refused(**changed: object) -> str:
        path.write_text(json.dumps({**content, **changed}))
        with pytest.raises(InputError) as caught:
            read(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    newer = {"schema": f"presim-{name}/9"} if "schema" in content else {"schema_version": 9}
    assert refused(**newer).startswith(f"{path} was written by a newer presim (schema 9, this one reads ")
    others: dict[str, object] = {field: [[]] for field in kind.fields.split()}
    assert refused(**others).startswith(f"{path} is a damaged result of `{kind.verb}` (")


@pytest.mark.parametrize(
    ("part", "figure", "value"), [("job", "world_size", 0), ("", "step_time_s", -1.0), ("time", "compute_s", 1e308)]
)
def test_a_report_of_figures_that_no_prediction_has_is_refused(
    samples: dict[str, Sample], tmp_path: Path, part: str, figure: str, value: float
) -> None:
    path, content = tmp_path / "result.json", json.loads(samples["run"].path.read_text())
    table = content[part] if part else content
    assert figure in table
    table[figure] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"damaged result of .*{figure} is .*, and lies between"):
        read(path)


INTERRUPTED = "interrupted after 12 of 40 trials"


@pytest.mark.parametrize("reason", [INTERRUPTED, {"reason": INTERRUPTED}, True])
def test_a_partial_result_says_why(samples: dict[str, Sample], reason: object, tmp_path: Path) -> None:
    path = tmp_path / "partial.json"
    path.write_text(json.dumps({**json.loads(samples["network"].path.read_text()), "partial": reason}))
    line = f"partial: {'the work was interrupted' if reason is True else INTERRUPTED}"
    assert saved_results.run(["report", str(path)]) == f"{line}\n{samples['network'].printed}"
    assert line in page(read(path))


@pytest.mark.parametrize("name", JSONS)
def test_every_kind_of_partial_result_says_so(samples: dict[str, Sample], name: str, tmp_path: Path) -> None:
    path = tmp_path / "partial.json"
    path.write_text(json.dumps({**json.loads(samples[name].path.read_text()), "partial": True}))
    assert "partial: " in saved_results.run(["report", str(path)]).lower()
    assert "partial: " in page(read(path)).lower()


def test_a_graph_is_summarised_and_a_saved_job_simulated(samples: dict[str, Sample]) -> None:
    """As `presim graph show` and `presim simulate` do."""
    folder = samples["run"].path.parent
    assert saved_results.run(["report", str(folder / "graph.toml")]) == samples["graph-summary"].printed
    assert saved_results.run(["report", str(folder / "job")]) == samples["run"].printed


def test_a_file_of_a_saved_job_is_named(samples: dict[str, Sample]) -> None:
    job = samples["run"].path.parent / "job"
    with pytest.raises(InputError, match=f"^{job}/job.json is part of a saved job; name its folder, {job}$"):
        read(job / "job.json")


@pytest.mark.parametrize("name", JSONS)
def test_texts_of_results_are_neither_markup_nor_emoji(samples: dict[str, Sample], name: str, tmp_path: Path) -> None:
    """Signatures have brackets, and scripts colons; what looks like a closing tag is no error."""
    path, mark = tmp_path / "marked.json", "[red]:fire:[/nope]"
    path.write_text(json.dumps(marked(json.loads(samples[name].path.read_text()), mark)))
    printed = "".join(saved_results.run(["report", str(path)]).split())
    seen = html.unescape(re.sub(r"<[^>]*>", " ", page(read(path))))
    assert "\U0001f525" not in printed + seen


def marked(value: object, mark: str, key: str = "") -> object:
    """The JSON with a mark behind every sentence; words that may be names of a choice stay."""
    if isinstance(value, dict):
        return {name: marked(part, mark, name) for name, part in value.items()}
    if isinstance(value, list):
        return [marked(part, mark, key) for part in value]
    return f"{value}{mark}" if isinstance(value, str) and " " in value else value
