"""The JSON interface is what its OpenAPI description says, for every address, and events bring each change."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from presim.app.answers import Overview
from presim.app.api import ADDRESSES, TOKEN, Address, openapi
from presim.app.events import changes
from presim.app.guard import Tokens
from presim.app.login import allowed_hosts
from presim.app.server import application
from presim.app.state import AppState
from presim.cli import main
from presim.system.files import decode_json
from presim.system.localhost import HOSTS

WORDS = ["serve", "llama3-8b", "--gpu", "h100-sxm", "--rate", "2", "--requests", "8"]
VALUES = {"model": "llama3-8b", "gpu": "h100-sxm", "rate": "2", "requests": "8"}
NAMES = {"question": "serve", "name": "serve-1", "names": "serve-1", "pane": "report"}
_SECRET = "a-secret-of-a-team"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppState]:
    """A project with a result."""
    state = AppState(tmp_path_factory.mktemp("project"))
    state.project.write_command("serve-1", [*WORDS, "--json", "serve-1.json"])
    assert main.run([*WORDS, "-q", "--json", str(state.project.path("serve-1"))]) == 0
    yield state
    state.close()


@pytest.fixture(scope="module")
def client(state: AppState) -> TestClient:
    return TestClient(application(state, _SECRET), base_url="http://localhost:8123", headers={TOKEN: _SECRET})


def ask(client: TestClient, address: Address, **headers: str) -> Any:
    """The response of an address with this project's names; of jobs, a name that there is none of."""
    name = "upload.json" if address.body == "file" else "serve-9" if address.path.startswith("/jobs") else "serve-1"
    path = f"/api{address.path.format(**{**NAMES, 'name': name})}"
    body = msgspec.json.encode(VALUES) if address.body == "values" else b"{}" if address.body else None
    return client.request(address.method, path, content=body, headers={**client.headers, **headers})


_ASKED = [
    address
    for address in ADDRESSES
    if address.answer not in ("events", "start", "remove") and not address.path.startswith("/jobs/{name}")
]


@pytest.mark.parametrize("address", _ASKED, ids=lambda address: address.answer)
def test_an_answer_is_of_the_type_that_is_described(client: TestClient, address: Address) -> None:
    response = ask(client, address)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith(address.media_type)
    if address.media_type == "application/json":
        msgspec.convert(response.json(), address.type)


def test_every_route_is_described_and_every_description_has_its_route(state: AppState) -> None:
    routes = [route for route in application(state, _SECRET).routes if isinstance(route, Route)]
    served = {
        (method, route.path.replace(":path", ""))
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }
    document = openapi()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert {(method, path) for method, path in served if path.startswith("/api")} == described


def test_the_description_has_every_type_that_it_names(client: TestClient) -> None:
    text = client.get("/api/openapi.json").text
    document = decode_json(text.encode())
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == set(document["components"]["schemas"])
    assert document["components"]["schemas"]["Overview"]["properties"]["results"]["type"] == "array"


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address.answer)
def test_a_read_only_link_looks_and_changes_nothing(client: TestClient, state: AppState, address: Address) -> None:
    before = sorted(path.name for path in state.project.folder.iterdir())
    if address.answer == "events":
        return
    response = ask(client, address, **{TOKEN: Tokens(_SECRET).read_only})
    assert (response.status_code == 403) == (address.method != "GET")
    assert sorted(path.name for path in state.project.folder.iterdir()) == before


def test_a_read_only_page_knows_that_it_is(client: TestClient) -> None:
    assert client.get("/api/project").json()["may_change"] is True
    answer = client.get("/api/project", headers={TOKEN: Tokens(_SECRET).read_only}).json()
    assert answer["may_change"] is False


def test_only_named_hosts_are_answered(state: AppState) -> None:
    app = application(state, _SECRET, ("10.0.0.7",))
    assert TestClient(app, base_url="http://10.0.0.7:80").get("/").status_code == 200
    assert TestClient(app, base_url="http://rebound.example").get("/").status_code == 400


def test_events_bring_the_project_once_for_each_change(state: AppState, tmp_path: Path) -> None:
    overviews = [state.overview(), state.overview(), msgspec.structs.replace(state.overview(), folder="elsewhere")]
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def two() -> list[Overview]:
        shown = iter(overviews)
        stream = changes(lambda: next(shown), pause)
        texts = [await anext(stream) for _ in range(2)]
        return [msgspec.json.decode(text.removeprefix(b"data: "), type=Overview) for text in texts]

    assert [overview.folder for overview in asyncio.run(two())] == [overviews[0].folder, "elsewhere"]
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets others in, and needs a login token: add --token-file FILE"),
        (["--host", "0.0.0.0", "--token-file", "short"], "short holds no token: at least 16 letters, digits"),
        (["--token-file", "none"], "none"),
        (["--host", "192.0.2.1", "--token-file", "token"], "192.0.2.1 is no IPv4 address of this machine"),
    ],
)
def test_others_are_let_in_with_a_token_only(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "token").write_text(f"{_SECRET}\n")
    assert main.run(["app", "--no-open", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_an_app_for_all_is_addressed_by_names_of_this_machine_only() -> None:
    """So that no other site can lead a browser here under a name of its own."""
    assert allowed_hosts(None) == HOSTS
    assert allowed_hosts("10.0.0.7")[-1] == "10.0.0.7"
    assert allowed_hosts("0.0.0.0")[-1] == socket.gethostname()
    assert "*" not in allowed_hosts("0.0.0.0")


def test_a_read_only_token_is_another_one_and_that_of_its_token() -> None:
    assert len({_SECRET, Tokens(_SECRET).read_only, Tokens(_SECRET).cookie, Tokens("other").read_only}) == 4
    assert Tokens(_SECRET).read_only == Tokens(_SECRET).read_only
