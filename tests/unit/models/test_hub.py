"""The hub's client against a server on this machine: what it fetches, what the cache keeps, and what each refusal says."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT, OTHER = "1" * 40, "2" * 40
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "1_Pooling/config.json": b"pool",
    "pytorch_model.bin": b"no",
    "README.md": b"",
}
REFUSALS = {
    "some/gated": (403, "GatedRepo"),
    "some/unseen": (401, None),
    "some/absent": (404, "RepoNotFound"),
    "some/down": (503, None),
    "some/old": (404, "RevisionNotFound"),
}
SCRIPT = """
import json, sys
from pathlib import Path
from latentry.errors import SourceError
from latentry.models.hub import Config, build
told = []
for number, asked in enumerate(json.loads(sys.argv[1])):
    into = Path(sys.argv[2], str(number))
    into.mkdir(parents=True)
    try:
        folder = build(Config(kind="hub", **asked)).fetch(into.parent, into)
        told.append({p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file() and ".cache" not in p.parts})
    except SourceError as error:
        told.append(str(error))
print(json.dumps(told))
"""


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as its client asks for: one model, `some/model`, whose branch `main` is at COMMIT."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/")
        name = "/".join(path.removeprefix("api/models/").split("/")[:2])
        rest = path.removeprefix("api/models/").removeprefix(f"{name}/")
        if name in REFUSALS:
            self._send(*REFUSALS[name])
        elif rest == "revision/main":
            self._send(200, body=json.dumps({"id": name, "sha": COMMIT, "siblings": []}).encode())
        elif rest == f"tree/{COMMIT}":
            self._send(200, body=json.dumps([entry(file, content) for file, content in FILES.items()]).encode())
        elif rest.startswith(f"resolve/{COMMIT}/"):
            content = FILES[rest.removeprefix(f"resolve/{COMMIT}/")]
            self._send(200, body=content, headers={"ETag": f'"{oid(content)}"', "X-Repo-Commit": COMMIT})
        else:
            self._send(404, "RevisionNotFound")

    def _send(self, status: int, code: str | None = None, body: bytes = b"{}", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        told = {"content-length": str(len(body)), **(headers or {}), **({"X-Error-Code": code} if code else {})}
        for header, value in told.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def entry(file: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": file, "size": len(content), "oid": oid(content)}


@contextmanager
def serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fetch(folder: Path, endpoint: str, *asked: Mapping[str, object], cache: Path, **environment: str) -> list[str | dict[str, str]]:
    """What is fetched, or said, for each; in a process of its own, because the client reads its surroundings when it is imported."""
    own = {
        "HF_HOME": str(cache),
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "0",
    }
    command = [sys.executable, "-c", SCRIPT, json.dumps(asked), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | own | environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def model(revision: str = "main", name: str = "some/model", **more: object) -> dict[str, object]:
    return {"id": name, "revision": revision, **more}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def online(tmp_path_factory, cache) -> list[str | dict[str, str]]:
    asked = [
        model(),
        model(COMMIT, files=("*.json",)),
        model("v9"),
        model(OTHER),
        *(model(name=name) for name in REFUSALS),
        model(name="no/such/form"),
        model(files=("*.onnx",)),
    ]
    with serving() as endpoint:
        return fetch(tmp_path_factory.mktemp("online"), endpoint, *asked, cache=cache)


def test_the_files_wanted_are_fetched_at_the_revision_and_no_others(online):
    wanted = {name: content.decode() for name, content in FILES.items() if name.endswith((".json", ".safetensors"))}
    assert online[0] == wanted
    assert online[1] == {name: content for name, content in wanted.items() if name.endswith(".json")}


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (2, "hub some/model@v9: the model is there, and no such revision of it; set `revision` to a commit, tag or branch that it has"),
        (3, f"hub some/model@{OTHER}: the model is there, and no such revision of it; set `revision` to"),
        (
            4,
            "hub some/gated@main: access to it must be granted; ask for it on the model's page, and set HF_TOKEN to the key of an account",
        ),
        (5, "hub some/unseen@main: there is no such model, or none that may be seen; check `id`, and for a private one HF_TOKEN"),
        (6, "hub some/absent@main: there is no such model, or none that may be seen; check `id`"),
        (7, "hub some/down@main: the hub cannot be reached (Server error '503"),
        (8, "hub some/old@main: the model is there, and no such revision of it"),
        (9, "hub no/such/form@main: is no name on the hub"),
        (10, "hub some/model@main: none of its files fits `files` (*.onnx)"),
    ],
)
def test_each_refusal_says_what_is_missing_and_what_to_do(online, number, said):
    assert online[number].startswith(said)


def test_no_network_and_nothing_in_the_cache_says_so(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        (told,) = fetch(tmp_path / "into", f"http://127.0.0.1:{closed.getsockname()[1]}", model(), cache=tmp_path / "cache")
    assert told.startswith("hub some/model@main: the hub cannot be reached (")
    assert told.endswith("), and its cache on this machine does not hold all of it; mend the network, or name a folder or packages")


@pytest.mark.parametrize("environment", [{"HF_HUB_OFFLINE": "1"}, {}], ids=["told to stay offline", "no network"])
def test_what_was_fetched_once_is_there_without_a_network(tmp_path, online, cache, environment):
    asked = model(), model(COMMIT), model("v9"), model(files=("README.md",))
    found = fetch(tmp_path, "http://127.0.0.1:9", *asked, cache=cache, **environment)
    assert found[:2] == [online[0], online[0]]
    assert found[2].startswith("hub some/model@v9: the hub cannot be reached (")
    assert found[3].startswith("hub some/model@main: the hub cannot be reached (")


def test_a_model_from_the_hub_is_copied_out_of_the_cache_and_is_no_link_into_it(tmp_path, online, cache):
    script = """
import sys
from pathlib import Path
from latentry.models.hub import Config
from latentry.models.obtain import ModelSettings, obtain
settings = ModelSettings(format="folder", sources=({},))
obtain("m", settings, [Config(kind="hub", id="some/model", revision="main")], Path("downloads"), Path("model"))
"""
    offline = os.environ | {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", script], check=True, env=offline, cwd=tmp_path, timeout=120)
    copied = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "model").as_posix(): path.read_text() for path in copied} == online[0]
    assert not any(path.is_symlink() for path in copied)
