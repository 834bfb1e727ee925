"""A hard budget: stops before it is passed, whatever the concurrency and the processes, and goes on when it is raised."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from latentry.clients import pool
from latentry.clients.ledger import Spent, call
from latentry.clients.progress import shown
from latentry.clients.reply_store import ReplyStore
from latentry.errors import BudgetError
from latentry.sections import Budget, Price
from loopback import Answer, completion, failure, loopback, request

PRICE = Price(prompt=100_000.0, reply=200_000.0)
"""Of the loopback server's 7 + 3 tokens a call: 1.30 dollars."""


def after(seconds: float):
    return lambda asked, _: Answer(body=completion(asked).body, after_s=seconds)


def asked(n: int):
    return [request(f"q{i}") for i in range(n)]


@pytest.mark.parametrize(("budget", "n_calls"), [(Budget(calls=7), 7), (Budget(tokens=400), 40), (Budget(usd=30.0), 23)])
def test_a_budget_stops_before_it_is_passed_and_resumes_when_raised(pool_at, budget, n_calls):
    with loopback(after(0.01)) as server:
        ask = pool_at(server.url, budget=budget, price=PRICE, concurrency=8).asker("judge", "test")
        with pytest.raises(BudgetError, match=r"run\.budget\.(calls|tokens|usd)") as raised:
            ask(asked(60))
        assert raised.value.exit_code == 3
        # the last calls are charged at their most before they are sent, so a few may stay unsent
        before = sum(server.calls.values())
        assert n_calls * 0.8 <= before <= n_calls
        assert len(pool_at(server.url, price=PRICE).asker("judge", "test")(asked(60))) == 60
        assert sum(server.calls.values()) == 60 > before


def test_replies_that_the_store_has_need_no_budget(pool_at):
    with loopback(after(0)) as server:
        pool_at(server.url).asker("judge", "test")(asked(5))
        assert len(pool_at(server.url, budget=Budget(calls=5)).asker("judge", "test")(asked(5))) == 5


def test_every_call_that_is_sent_counts_and_one_that_brings_nothing_takes_no_tokens(pool_at, tmp_path):
    with loopback(lambda text, before: failure(500, "oops") if text == "q1" or not before else completion("fine")) as server:
        pool_at(server.url, budget=Budget(calls=9), retries=2, price=PRICE).asker("judge", "test")(asked(4))
        sent = sum(server.calls.values())
    spent = ReplyStore(tmp_path / "replies").ledger.spent()
    assert (sent, spent.calls, spent.prompt_tokens, spent.reply_tokens, round(spent.usd, 6)) == (9, 9, 21, 9, 3.9)


def test_further_tries_do_not_pass_a_budget_of_calls(pool_at):
    with loopback(lambda *_: failure(500, "oops")) as server:
        with pytest.raises(BudgetError):
            pool_at(server.url, budget=Budget(calls=7), retries=5).asker("judge", "test")(asked(4))
        assert sum(server.calls.values()) == 7


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": -50, "completion_tokens": -50}, {"prompt_tokens": 0.5}]
)
def test_a_call_whose_usage_is_unknown_stays_charged_at_its_most(pool_at, tmp_path, usage):
    with loopback(lambda *_: Answer(body=completion("fine").body | {"usage": usage})) as server:
        with pytest.raises(BudgetError, match="tokens"):
            pool_at(server.url, budget=Budget(tokens=200), concurrency=1).asker("judge", "test")(asked(60))
        n_calls = sum(server.calls.values())
    spent = ReplyStore(tmp_path / "replies").ledger.spent()
    assert 0 < n_calls < 10
    assert spent.prompt_tokens + spent.reply_tokens == n_calls * 48  # 2 bytes, a turn, a prompt, and a reply of 8


def test_an_unreadable_answer_is_charged_what_it_says_it_took(pool_at, tmp_path):
    usage = {"prompt_tokens": 70, "completion_tokens": 30}
    with loopback(lambda *_: Answer(body={"choices": [{"message": 7}], "usage": usage})) as server:
        pool_at(server.url).asker("judge", "test")(asked(3))
    spent = ReplyStore(tmp_path / "replies").ledger.spent()
    assert (spent.calls, spent.prompt_tokens, spent.reply_tokens) == (3, 210, 90)


def test_each_reply_knows_what_it_cost_and_an_unknown_price_makes_an_unknown_total(pool_at, tmp_path):
    with loopback(after(0)) as server:
        priced = pool_at(server.url, price=PRICE).asker("judge", "test")(asked(3))
        unknown = pool_at(server.url).asker("judge", "test")([request("new")])
    store = ReplyStore(tmp_path / "replies")
    assert store.totals(reply.key for reply in priced).usd == pytest.approx(3 * 1.3)
    assert store.totals(reply.key for reply in [*priced, *unknown]).usd is None


def test_what_is_spent_without_a_budget_counts_when_there_is_one(pool_at):
    with loopback(after(0)) as server:
        pool_at(server.url).asker("judge", "test")(asked(5))
        with pytest.raises(BudgetError, match="5 calls"):
            pool_at(server.url, budget=Budget(calls=5)).asker("judge", "test")([request("new")])


SPENDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from latentry.clients.openai_compatible import Config
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
from latentry.errors import BudgetError
from latentry.sections import Budget
from loopback import Run, request

pool = ClientPool(
    {"judge": Config(kind="openai_compatible", model="m")},
    {"judge": Run(base_url=sys.argv[1], concurrency=8)},
    models=Path("models"), store=ReplyStore(Path(sys.argv[2])), budget=Budget(calls=25),
)
try:
    pool.asker("judge", "test")([request(f"{sys.argv[4]} {i}") for i in range(40)])
except BudgetError as error:
    sys.exit(error.exit_code)
"""


def test_several_processes_together_never_pass_a_budget(tmp_path):
    tests = os.fspath(Path(__file__).parents[2])
    with loopback(after(0.05)) as server:
        command = [sys.executable, "-c", SPENDER, server.url, os.fspath(tmp_path), tests]
        spenders = [subprocess.Popen([*command, f"process{i}"]) for i in range(3)]
        assert [spender.wait(timeout=60) for spender in spenders] == [3] * 3
        assert sum(server.calls.values()) == 25


def test_a_call_that_a_kill_cut_off_stays_charged(tmp_path):
    killed = ReplyStore(tmp_path)
    assert not killed.ledger.reserve("judge", call(100, 10, PRICE), Budget(tokens=200))
    killed.close()
    assert ReplyStore(tmp_path).ledger.reserve("judge", call(100, 10, PRICE), Budget(tokens=200)) == "tokens (200)"


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        (Spent(calls=1200, prompt_tokens=45000, reply_tokens=1200), "1,200 calls, 45,000 + 1,200 tokens"),
        (call(1000, 10, Price(prompt=1.0, reply=2.0)), "1 calls, 1,000 + 10 tokens, $0.0010"),
        (call(1_000_000, 1_000_000, Price(prompt=1.0, reply=2.0)), "1 calls, 1,000,000 + 1,000,000 tokens, $3.00"),
    ],
)
def test_a_total_says_calls_tokens_and_money(spent, text):
    assert shown(spent) == text


def test_the_models_that_answered_are_known_by_their_own_names(pool_at):
    with loopback(after(0)) as server:
        made: pool.ClientPool = pool_at(server.url)
        made.asker("judge", "test")(asked(2))
    assert made.served() == {"judge": ["served-model"]}
