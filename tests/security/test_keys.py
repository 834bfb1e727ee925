"""Keys: found where they were pasted, never shown, and masked in whatever a server or an error says."""

import base64
import json
import logging
from urllib.parse import quote

import pytest

from latentry.clients.openai_compatible import Config
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
from latentry.errors import EndpointError, ParamsError
from latentry.params import load_params, parse_params
from latentry.runtime import run_stage
from latentry.safe_text import MASK, forms_of, looks_like_key, masked, without_keys
from loopback import Run, completion, failure, loopback, request
from security.planted_key import KEY, holds_key
from small_params import small_params

LOOKS = [
    "sk-proj-4aBcD3fGh1jKlMn0pQrStUvWxYz",
    "sk-ant-api03-abcdEFGH1234-_ijkl",
    "hf_abcdefghijklmnopqrstuvwx",
    "ghp_0123456789abcdefghijABCDEFGHIJ",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "xoxb-123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl",
    "https://me:hunter2hunter2@example.org/v1",
    "-----BEGIN RSA PRIVATE KEY-----",
]
PLAIN = [
    "model.layers.1",
    "task-conditional-layers-of-things",
    "EleutherAI/sae-pythia-160m-32k",
    "sk-learn",
    "a1b2c3d4" * 5,
    "risk-averse-people-in-2020",
]


@pytest.mark.parametrize("key", LOOKS)
@pytest.mark.parametrize("place", ["clients.judge.extra_body.anything", "tracking.experiment", "run.clients.judge.base_url", "corpus.path"])
def test_a_key_in_params_is_a_fault_that_does_not_show_it(key, place):
    with pytest.raises(ParamsError) as error:
        parse_params(small_params(**{place.replace(".", "__"): f"a {key}"}))
    assert any(fault.startswith(place) and "not shown" in fault for fault in error.value.faults)
    assert key not in str(error.value) and "hunter2" not in str(error.value)


def test_words_that_are_no_keys_are_none():
    assert [text for text in PLAIN if looks_like_key(text)] == []


@pytest.mark.parametrize("name", ["api_key", "Authorization", "password"])
def test_what_stands_where_a_key_stands_is_one_whatever_it_looks_like(name):
    tree = small_params(clients__judge={"kind": "openai_compatible", "model": "m", "extra_body": {"headers": {name: "open sesame"}}})
    with pytest.raises(ParamsError, match=rf"clients\.judge\.extra_body\.headers\.{name}") as error:
        parse_params(tree)
    assert "sesame" not in str(error.value)


def test_the_environments_own_keys_are_found_in_params_and_masked_in_every_fault(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "plainwordsonly")
    with pytest.raises(ParamsError) as error:
        parse_params(small_params(run__concurrency="plainwordsonly"))
    assert "plainwordsonly" not in str(error.value) and "run.concurrency" in str(error.value)


def test_a_file_that_is_no_yaml_shows_no_key_of_its_lines(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(f"clients: {{judge: [{LOOKS[0]}\nseed: ]")
    with pytest.raises(ParamsError) as error:
        load_params(path)
    assert LOOKS[0] not in str(error.value)


def test_every_usual_encoding_of_a_key_is_masked_wherever_it_stands():
    for before in ("", "a", "ab", "user:", "Bearer "):
        whole = f"{before}{KEY}!"
        said = [whole, quote(whole, safe=""), json.dumps(whole), base64.b64encode(whole.encode()).decode()]
        said.append(base64.urlsafe_b64encode(whole.encode()).decode())
        for text in said:
            assert MASK in masked(text, forms_of(KEY)) and not holds_key(masked(text, forms_of(KEY)).encode())


@pytest.mark.parametrize("code", [200, 401, 500])
def test_nothing_that_a_server_says_back_holds_the_key_or_moves_a_cursor(tmp_path, monkeypatch, code):
    monkeypatch.setenv("A_SECRET", KEY)
    escape = "\x1b[2J\x1b]0;owned\x07\u202e"

    def rule(_text, _before):
        said = f"{escape}{KEY} {base64.b64encode(KEY.encode()).decode()}"
        if code == 200:
            return completion("yes", logprobs={"yes": -0.1, KEY: -2.0, quote(KEY, safe=""): -3.0}, finish="stop")
        return failure(code, said)

    with loopback(rule) as server:
        run, store = Run(base_url=server.url, key_env="A_SECRET", retries=0), ReplyStore(tmp_path / "replies")
        judge = {"judge": Config(kind="openai_compatible", model="m")}
        pool = ClientPool(judge, {"judge": run}, models=tmp_path, store=store, first_wait_s=0.01, budget=None)
        try:
            said = repr(pool.asker("judge", "test")([request("a", alternatives=("yes", "no"))]))
        except EndpointError as error:
            said = str(error)
        assert not set(said) & {"\x1b", "\x07", "\u202e"}
    assert server.authorizations == {f"Bearer {KEY}"}
    assert not holds_key(said.encode())


@pytest.mark.parametrize("fault", [RuntimeError, OSError, ParamsError])
def test_a_stage_that_ends_says_no_key_and_nothing_that_a_terminal_obeys(monkeypatch, capsys, fault):
    monkeypatch.setenv("JUDGE_TOKEN", KEY)

    def main():
        said = f"\x1b[31m{KEY} {base64.b64encode(KEY.encode()).decode()}\x07 \u202e"
        logging.getLogger("latentry").warning("%s", said)
        raise fault("params.yaml", [said]) if fault is ParamsError else fault(said)

    logging.getLogger().handlers.clear()
    with pytest.raises(SystemExit) as ended:
        run_stage(main)
    said = capsys.readouterr().err
    logging.getLogger().handlers.clear()
    assert ended.value.code == (2 if fault is ParamsError else 1)
    assert said.count(MASK) >= 2 and not holds_key(said.encode())
    assert not set(said) & {"\x1b", "\x07", "\u202e"}


def test_the_key_of_a_url_is_masked_and_the_url_is_not():
    assert without_keys("postgresql://me:secret@db.example.org/runs") == f"postgresql://{MASK}@db.example.org/runs"
