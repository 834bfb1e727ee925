"""The reply store: what it keeps, what it refuses, and several processes on one file."""

import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from latentry.clients.reply_store import ReplyStore, reply_key
from latentry.errors import ContractError
from latentry.records import Message, Reply, Request, Status

REQUEST = Request(messages=(Message(role="user", content="Is it 鯨?"),), max_tokens=4)
REPLY = Reply(status=Status.OK, text="naïve 🐋\n", detail="", alternatives={" yes": -0.25}, prompt_tokens=11, reply_tokens=2, model="m")


def test_a_reply_comes_back_exactly_with_its_key_after_reopening(tmp_path):
    ReplyStore(tmp_path).keep({"k": REPLY})
    assert ReplyStore(tmp_path).find(["k", "unknown"]) == {"k": replace(REPLY, key="k")}


@pytest.mark.parametrize("status", [Status.OK, Status.TRUNCATED, Status.REFUSED])
def test_final_replies_are_kept(tmp_path, status):
    store = ReplyStore(tmp_path)
    store.keep({"k": replace(REPLY, status=status)})
    assert store.find(["k"])["k"].status is status


def test_a_failed_call_is_given_back_but_not_kept(tmp_path):
    store = ReplyStore(tmp_path)
    given = store.keep({"k": replace(REPLY, status=Status.CLIENT_ERROR), "l": REPLY})
    assert given["k"].status is Status.CLIENT_ERROR
    assert list(store.find(["k", "l"])) == ["l"]


def test_replies_of_requests_without_later_wants_keep_their_keys():
    assert reply_key({"model": "a"}, REQUEST) == "ec90fcc721810344266045f38db8ec207ecf8151042c2723a4ca4472d5dc7efd"
    assert len({reply_key({"model": "a"}, replace(REQUEST, **want)) for want in ({}, {"schema": "{}"}, {"continuation": "x"})}) == 3


def test_the_first_reply_stays_when_another_process_asked_the_same(tmp_path):
    one, other = ReplyStore(tmp_path), ReplyStore(tmp_path)
    one.keep({"k": REPLY})
    assert other.keep({"k": replace(REPLY, text="later")})["k"].text == REPLY.text


def test_totals_count_each_reply_once(tmp_path):
    store = ReplyStore(tmp_path)
    store.keep({f"k{i}": REPLY for i in range(1200)})
    totals = store.totals([f"k{i}" for i in range(1200)] + ["k0", "unknown"])
    assert (totals.calls, totals.prompt_tokens, totals.reply_tokens) == (1200, 1200 * 11, 1200 * 2)
    assert store.totals([]).calls == 0


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, messages=(Message(role="user", content="Is it?"),)),
        replace(REQUEST, messages=(Message(role="system", content="Is it 鯨?"),)),
        replace(REQUEST, max_tokens=5),
        replace(REQUEST, temperature=0.5),
        replace(REQUEST, sample=1),
        replace(REQUEST, alternatives=("yes",)),
    ],
)
def test_whatever_a_reply_depends_on_is_in_its_key(other):
    assert reply_key({"model": "a"}, other) != reply_key({"model": "a"}, REQUEST)
    assert reply_key({"model": "b"}, REQUEST) != reply_key({"model": "a"}, REQUEST)
    assert reply_key({"model": "a"}, replace(REQUEST, temperature=0)) == reply_key({"model": "a"}, REQUEST)


def test_a_file_that_is_no_store_or_a_newer_one_is_named(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "replies.sqlite").write_bytes(b"these are no replies " * 100)
    with pytest.raises(ContractError, match=r"bad/replies\.sqlite"):
        ReplyStore(tmp_path / "bad")
    ReplyStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "replies.sqlite") as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(ContractError, match="v9"):
        ReplyStore(tmp_path)


def test_a_store_from_before_money_is_read_and_its_costs_are_unknown(tmp_path):
    ReplyStore(tmp_path).keep({"k": REPLY})
    with sqlite3.connect(tmp_path / "replies.sqlite") as connection:
        connection.execute("ALTER TABLE replies DROP COLUMN usd")
    store = ReplyStore(tmp_path)
    assert store.find(["k"]) == {"k": replace(REPLY, key="k")}
    assert store.totals(["k"]).usd is None
    store.keep({"l": REPLY}, usd=0.5)
    assert store.totals(["l"]).usd == 0.5


WRITER = """
import sys
from pathlib import Path
from latentry.clients.reply_store import ReplyStore
from latentry.records import Reply, Status

store = ReplyStore(Path(sys.argv[1]))
for i in range(150):
    own = Reply(status=Status.OK, text=sys.argv[2], detail="", prompt_tokens=1)
    store.keep({f"shared {i}": own, f"{sys.argv[2]} {i}": own})
"""


OPENER = """
import random
import sys
import time
from pathlib import Path
from latentry.clients.reply_store import ReplyStore
begin, chance = float(sys.argv[2]), random.Random(sys.argv[3])
for i in range(150):
    time.sleep(max(0.0, begin + i * 0.015 - time.time()) + chance.random() * 0.002)
    ReplyStore(Path(sys.argv[1]) / str(i))
"""


def test_several_processes_may_begin_one_store(tmp_path):
    begin = time.time() + 2
    openers = [subprocess.Popen([sys.executable, "-c", OPENER, str(tmp_path), str(begin), str(i)]) for i in range(6)]
    assert [opener.wait(timeout=60) for opener in openers] == [0] * 6


def test_several_processes_write_one_store_and_lose_nothing(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), f"writer{i}"]) for i in range(4)]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    names = ["shared", *(f"writer{i}" for i in range(4))]
    assert ReplyStore(tmp_path).totals(f"{name} {i}" for name in names for i in range(150)).calls == 5 * 150
