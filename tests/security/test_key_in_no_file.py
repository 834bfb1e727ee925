"""A key from the environment, and a judge that says it back in every way it can: it is in no file, no output and no command line."""

import base64
import subprocess
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
import yaml

from loopback import Answer, completion, failure, loopback
from pipeline.tiny import environment, lay_out
from security.planted_key import KEY, contents, forms, holds_key, watched_command_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
VARIABLE = "JUDGE_SECRET"
ECHO = f"Authorization: Bearer {KEY}; {quote(KEY, safe='')}; {base64.b64encode(f'user:{KEY}'.encode()).decode()}"
HEADERS = {"X-Echo": KEY, "Retry-After": KEY.replace("'", ""), "Set-Cookie": quote(KEY)}


def asks(text):
    return "explains" if "<<" in text and "yes" not in text.lower() else "judges"


def refused(_text, _before):
    return failure(401, f"no such key: {ECHO}", headers=HEADERS)


def redirected(_text, _before):
    return Answer(status=307, body=ECHO, headers={"Location": f"https://user:{KEY}@example.org/v1?key={quote(KEY)}"} | HEADERS)


def apologetic(_text, _before):
    return Answer(body=f"<html>{ECHO}</html>", is_html=True, headers=HEADERS)


def unreadable(_text, _before):
    return Answer(body=f"{{{ECHO}", headers=HEADERS)


def telling(text, before):
    """Fails, refuses and answers by turns, each time with the key in it."""
    turn = sum(map(ord, text)) % 4
    if turn == 0 and before == 0:
        return failure(500, ECHO, headers=HEADERS, code=KEY)
    if turn == 1:
        return completion(None, refusal=ECHO, finish=KEY)
    if asks(text) == "explains":
        return completion(f"EXPLANATION: letters, and {ECHO}")
    return completion("yes", logprobs={"yes": -0.4, "no": -1.1, KEY: -3.0, f" {quote(KEY)}": -4.0})


def ask_endpoint(project: Path, url: str) -> None:
    path = project / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["clients"]["judge"] = {"kind": "openai_compatible", "model": "any"}
    tree["run"]["clients"] = {"judge": {"base_url": url, "key_env": VARIABLE, "concurrency": 2, "retries": 1}}
    tree["explainers"] = {"default": {"client": "judge", "max_latents": 4}}
    tree["scorers"] = {"detection": tree["scorers"]["detection"]}
    tree["examples"]["contrasts"] = {"random": {}}
    del tree["models"]["judge"], tree["models"]["encoder"]
    path.write_text(yaml.safe_dump(tree))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keyed")
    for command in (("git", "init", "--quiet"), ("dvc", "init", "--quiet")):
        subprocess.run(command, cwd=folder, env=environment(folder), check=True)
    lay_out(folder)
    (folder / ".gitignore").write_text("/data\n/report\n/.cache\n")
    return folder


class Shell:
    """Runs commands with the key in their environment and keeps what they say."""

    def __init__(self, project: Path) -> None:
        self.project, self.said = project, list[tuple[str, str]]()

    def __call__(self, *command: str) -> int:
        variables = environment(self.project) | {VARIABLE: KEY, "DVC_NO_ANALYTICS": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
        variables |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        done = subprocess.run(command, cwd=self.project, env=variables, capture_output=True, text=True, check=False)
        self.said.append((" ".join(command), done.stdout + done.stderr))
        return done.returncode


def test_the_key_is_in_no_file_output_or_command_line(project):
    shell = Shell(project)
    with loopback(refused) as server, watched_command_lines() as lines:
        ask_endpoint(project, server.url)
        assert shell("dvc", "repro", "explain") != 0
        for rule in (redirected, apologetic, unreadable):
            server.rule = rule
            shell("python", "stages/explain.py", "--sae", "tiny")
            for made in (project / "data" / "explanations").glob("*/*"):
                made.unlink()
        server.rule = telling
        assert shell("dvc", "repro") == 0, shell.said[-1][1]
        server.rule = refused
        for command in ("check", "estimate", "track", "show tiny 0", "retry", "verify"):
            shell("latentry", *command.split())
        assert any(KEY in header for header in server.authorizations), "the key was never sent, so nothing was tested"
        assert sum(server.calls.values()) > 10
    shell("git", "add", "--all")
    assert shell("git", "commit", "--quiet", "--message", "everything") == 0
    assert not lines
    assert [command for command, said in shell.said if holds_key(said.encode())] == []
    assert [name for name, content in contents(project) if holds_key(content)] == []
    rows = pq.read_table(project / "data/explanations/tiny/explanations.parquet").to_pylist()
    assert any("***" in (row["text"] or "") for row in rows), "the judge's echo came nowhere, so nothing was tested"
    assert (project / "mlflow.db").is_file() and any((project / ".cache/replies").iterdir())


def test_the_search_finds_what_is_there(tmp_path):
    for number, form in enumerate(forms()):
        (tmp_path / str(number)).write_bytes(b"before " + form + b" after")
    assert all(holds_key(content) for _, content in contents(tmp_path))
