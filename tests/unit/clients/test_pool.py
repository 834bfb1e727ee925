"""The pool on a loopback server: nothing paid twice, retries, limits, and what stops a run."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path

import pytest

from fakes import ScriptedClient
from latentry.clients.pool import answers_in_batches
from latentry.clients.progress import progress
from latentry.clients.reply_store import ReplyStore
from latentry.errors import EndpointError, ParamsError
from latentry.records import Reply, Request, Status
from loopback import Answer, completion, failure, loopback, request


def echo(asked: str, _: int) -> Answer:
    return completion(f"re {asked}")


def texts(replies: Sequence[Reply]) -> list[str]:
    return [reply.text for reply in replies]


def test_replies_come_in_order_and_equal_requests_are_asked_once(pool_at):
    with loopback(echo) as server:
        replies = pool_at(server.url).asker("judge", "test")([request(text) for text in "abcabc"])
        assert texts(replies) == [f"re {text}" for text in "abcabc"]
        assert server.calls == {"a": 1, "b": 1, "c": 1}


def test_a_second_run_pays_for_nothing(pool_at):
    asked = [request(f"q{i}") for i in range(20)]
    with loopback(echo) as server:
        first = pool_at(server.url).asker("judge", "test")(asked)
        again = pool_at(server.url).asker("judge", "test")(asked)
        assert sum(server.calls.values()) == 20
    assert again == first
    assert all(reply.key for reply in first)


def test_no_request_no_call(pool_at):
    with loopback(echo) as server:
        assert pool_at(server.url).asker("judge", "test")([]) == []
        assert not server.calls


def test_concurrency_is_used_and_never_exceeded(pool_at):
    with loopback(lambda asked, _: Answer(body=completion(asked).body, after_s=0.05)) as server:
        pool_at(server.url, concurrency=5).asker("judge", "test")([request(f"q{i}") for i in range(40)])
        assert server.most_in_flight == 5


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_failure_is_tried_again(pool_at, status):
    with loopback(lambda _, before: failure(status, "later") if before < 2 else completion("now")) as server:
        (reply,) = pool_at(server.url, retries=2).asker("judge", "test")([request("a")])
        assert (reply.status, reply.text, server.calls["a"]) == (Status.OK, "now", 3)


@pytest.mark.parametrize("header", [{"retry-after": "0.5"}, {"retry-after-ms": "500"}, {"retry-after": "two seconds from now"}])
def test_the_wait_that_the_server_asks_for_is_kept(pool_at, header):
    asked = {name: formatdate(time.time() + 2, usegmt=True) if "now" in value else value for name, value in header.items()}

    def rule(_: str, before: int) -> Answer:
        return completion("now") if before else failure(429, "slow down", headers=asked)

    with loopback(rule) as server:
        pool_at(server.url).asker("judge", "test")([request("a")])
        assert server.times[1] - server.times[0] >= 0.5


def test_a_row_that_keeps_failing_is_a_status_and_is_asked_again_next_time(pool_at):
    broken = {"b"}

    def rule(asked: str, _: int) -> Answer:
        return failure(500, "oops") if asked in broken else completion("fine")

    with loopback(rule) as server:
        replies = pool_at(server.url, retries=1).asker("judge", "test")([request(text) for text in "abc"])
        assert [reply.status for reply in replies] == [Status.OK, Status.CLIENT_ERROR, Status.OK]
        assert "HTTP 500 (oops) (after 2 tries)" in replies[1].detail
        assert len({reply.key for reply in replies if reply.key}) == 3
        broken.clear()
        assert texts(pool_at(server.url).asker("judge", "test")([request(text) for text in "abc"])) == ["fine"] * 3
        assert server.calls == {"a": 1, "b": 3, "c": 1}


def test_a_hanging_call_is_given_up(pool_at):
    with loopback(lambda asked, _: Answer(body=completion(asked).body, after_s=1.0 if asked == "b" else 0.0)) as server:
        replies = pool_at(server.url, retries=0, timeout_s=0.3).asker("judge", "test")([request("a"), request("b")])
        assert [reply.status for reply in replies] == [Status.OK, Status.CLIENT_ERROR]
        assert "no answer within 0.3 s" in replies[1].detail


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (failure(401, "bad key"), "JUDGE_KEY is not accepted"),
        (failure(403, "not yours"), "JUDGE_KEY is not accepted"),
        (failure(402, "pay"), "out of credit"),
        (failure(429, "quota", code="insufficient_quota"), "out of credit"),
        (failure(429, "quota", type="insufficient_quota"), "out of credit"),
        (failure(200, "pay", code="402"), "out of credit"),
        (failure(200, "pay", type="insufficient_quota"), "out of credit"),
        (failure(404, "no such model"), "asked-model"),
        (failure(400, "unknown model", code="model_not_found"), "asked-model"),
    ],
)
def test_what_every_row_would_meet_stops_at_once_and_keeps_what_was_paid(pool_at, monkeypatch, answer, said):
    monkeypatch.setenv("JUDGE_KEY", "sk-secret")
    with loopback(lambda asked, _: completion("fine") if asked == "q0" else answer) as server:
        ask = pool_at(server.url, concurrency=1, key_env="JUDGE_KEY").asker("judge", "test")
        with pytest.raises(EndpointError, match=said) as raised:
            ask([request(f"q{i}") for i in range(10)])
        assert raised.value.exit_code == 3
        assert sum(server.calls.values()) == 2
        assert texts(ask([request("q0")])) == ["fine"]
        assert server.calls["q0"] == 1


def test_an_endpoint_where_nobody_answers_is_said_to_be_down(pool_at):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    for n in (1, 30):
        with pytest.raises(EndpointError, match="cannot be reached"):
            pool_at(url, retries=1).asker("judge", "test")([request(f"q{i}") for i in range(n)])


def test_what_failed_is_no_reply_in_the_last_line(pool_at, caplog):
    caplog.set_level("INFO", logger="latentry")
    with loopback(lambda asked, _: completion("fine") if asked == "q0" else failure(500, "oops")) as server:
        pool_at(server.url, retries=0).asker("judge", "test")([request(f"q{i}") for i in range(3)])
    assert "test: 1 of 3 replies, 2 failed, " in caplog.messages[-1]


def test_the_key_is_sent_and_stands_nowhere_else(pool_at, monkeypatch, tmp_path):
    monkeypatch.setenv("JUDGE_KEY", "sk-secret-1234")

    def rule(asked: str, _: int) -> Answer:
        return completion("you sent sk-secret-1234") if asked == "a" else failure(400, "Bearer sk-secret-1234 is odd")

    with loopback(rule) as server:
        replies = pool_at(server.url, key_env="JUDGE_KEY").asker("judge", "test")([request("a"), request("b")])
        assert server.authorizations == {"Bearer sk-secret-1234"}
    assert "sk-secret" not in repr(replies)
    assert not [path for path in (tmp_path / "replies").iterdir() if b"sk-secret" in path.read_bytes()]

    with loopback(lambda *_: failure(401, "sk-secret-1234 is wrong")) as server:
        with pytest.raises(EndpointError, match="JUDGE_KEY") as raised:
            pool_at(server.url, key_env="JUDGE_KEY").asker("judge", "test")([request("c")])
        assert "sk-secret" not in str(raised.value)


def test_a_wrong_name_answers_with_the_nearest(pool_at):
    with pytest.raises(ParamsError, match="did you mean 'judge'"):
        pool_at(None).asker("juge", "test")


KILLED = """
import sys
from pathlib import Path
from latentry.clients.openai_compatible import Config
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
sys.path.insert(0, sys.argv[3])
from loopback import Run, request

pool = ClientPool(
    {"judge": Config(kind="openai_compatible", model="asked-model")},
    {"judge": Run(base_url=sys.argv[1], concurrency=4)},
    models=Path("models"),
    store=ReplyStore(Path(sys.argv[2])),
)
pool.asker("judge", "test")([request(f"q{i}") for i in range(60)])
"""


def test_a_killed_run_repeats_at_most_the_calls_in_flight(tmp_path):
    tests = os.fspath(Path(__file__).parents[2])
    with loopback(lambda asked, _: Answer(body=completion(asked).body, after_s=0.04)) as server:
        command = [sys.executable, "-c", KILLED, server.url, os.fspath(tmp_path), tests]
        run = subprocess.Popen(command)
        while sum(server.calls.values()) < 30 and run.poll() is None:
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        assert sum(server.calls.values()) < 60
        subprocess.run(command, check=True, timeout=60)
        assert len(server.calls) == 60
        assert sum(server.calls.values()) <= 60 + 4


ASKER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from latentry.clients.openai_compatible import Config
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
from loopback import Run, request

pool = ClientPool(
    {"judge": Config(kind="openai_compatible", model="m")},
    {"judge": Run(base_url=sys.argv[1], concurrency=4)},
    models=Path("models"), store=ReplyStore(Path(sys.argv[2])),
)
replies = pool.asker("judge", "test")([request(f"q{i}") for i in range(40)])
assert [reply.text for reply in replies] == [f"re q{i}" for i in range(40)]
"""


def test_two_processes_with_the_same_requests_pay_each_once(tmp_path):
    tests = os.fspath(Path(__file__).parents[2])
    with loopback(lambda asked, _: Answer(body=completion(f"re {asked}").body, after_s=0.2)) as server:
        askers = [subprocess.Popen([sys.executable, "-c", ASKER, server.url, os.fspath(tmp_path), tests]) for _ in range(2)]
        assert [asker.wait(timeout=60) for asker in askers] == [0, 0]
        assert (len(server.calls), sum(server.calls.values())) == (40, 40)


def test_a_claim_stands_until_it_is_released_or_its_process_is_dead_or_its_time_is_over(tmp_path):
    ours, other = ReplyStore(tmp_path).claims, ReplyStore(tmp_path).claims
    assert ours.take("a", 60)
    assert ours.take("a", 60)
    assert not other.take("a", 60)
    other.release("a")
    assert not other.take("a", 60)
    ours.release("a")
    assert other.take("a", -1)
    assert ours.take("a", 60)
    dead = f"from pathlib import Path; from latentry.clients.reply_store import ReplyStore; assert ReplyStore(Path({str(tmp_path)!r})).claims.take('b', 60)"
    assert subprocess.run([sys.executable, "-c", dead], check=False).returncode == 0
    assert ours.take("b", 60)


def in_batches(client: ScriptedClient, store: ReplyStore, asked: Sequence[Request], known: Sequence[str] = ()) -> dict[str, Reply]:
    distinct = {request.messages[0].content: request for request in asked}
    missing = {key: request for key, request in distinct.items() if key not in known}
    with progress("test", len(missing)) as shown:
        return answers_in_batches(client, 3, distinct, missing, store, shown)


def test_batches_do_not_depend_on_what_the_store_holds(tmp_path):
    asked = [request("x" * n) for n in (1, 5, 3, 2, 4, 6)]
    whole, rest = ScriptedClient(lambda _: "yes"), ScriptedClient(lambda _: "yes")
    in_batches(whole, ReplyStore(tmp_path / "1"), asked)
    in_batches(rest, ReplyStore(tmp_path / "2"), asked, known=["x" * 5, "x", "x" * 2, "x" * 3])
    lengths = [[len(each.messages[0].content) for each in batch] for client in (whole, rest) for batch in client.asked]
    assert lengths == [[6, 5, 4], [3, 2, 1], [6, 4]]


def test_each_batch_in_process_is_kept_before_the_next(tmp_path):
    def rule(asked: Request) -> str:
        if asked.messages[0].content == "x":
            raise RuntimeError("a kill between two batches")
        return "yes"

    store = ReplyStore(tmp_path)
    with pytest.raises(RuntimeError):
        in_batches(ScriptedClient(rule), store, [request("x" * n) for n in range(1, 7)])
    assert sorted(store.find("x" * n for n in range(1, 7))) == ["x" * 4, "x" * 5, "x" * 6]
