"""What models will be asked is known before: against a server that counts, with the stages run as they are."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from judged_project import SAE, examples, lay_out, stage
from latentry.clients.reply_store import ReplyStore
from latentry.estimate_calls import CallEstimate, estimate_calls, said
from latentry.metrics import smallest_detectable_with
from latentry.params import load_params
from latentry.planned_examples import planned_examples
from loopback import Answer, completion, loopback
from tiny_tokenizer import byte_tokenizer


def counted(body) -> int:
    """As some tokenizer might: words and signs, with a few tokens around each turn."""
    return sum(4 + len(re.findall(r"\w+|[^\w\s]", message["content"])) for message in body["messages"])


def judge(text: str, before: int) -> Answer:
    """Explains each time differently, and answers every window with yes."""
    if text.startswith("Texts:"):
        return completion(f"EXPLANATION: the words of {hash((text, before)) % 10**6} and others like them")
    return completion("Yes", logprobs={"Yes": -0.1, "No": -2.0})


def estimated(project: Path) -> CallEstimate:
    return estimate_calls(load_params(project / "params.yaml"), project / "data", ReplyStore(project / ".cache" / "replies"))


def run_both() -> None:
    assert stage("explain") is None
    assert stage("score", "--scorer", "detection") is None


def total(found: CallEstimate, name: str) -> int:
    return sum(getattr(cell, name) for cell in found.cells)


@pytest.fixture
def server():
    with loopback(judge) as server:
        server.prompt_tokens = counted
        yield server


def test_calls_are_exact_tokens_within_5_percent_and_replies_bounded_after_a_first_few(project, server):
    lay_out(project, server.url, 2)
    run_both()
    lay_out(project, server.url, 10)
    found = estimated(project)
    assert [(cell.cell, cell.kept) for cell in found.cells] == [(f"explain@{SAE} default", 2), (f"score@{SAE}-detection", 20)]
    before, n_before = total_tokens(server), sum(server.calls.values())
    run_both()
    assert total(found, "calls") == sum(server.calls.values()) - n_before
    assert total(found, "prompt_tokens") == pytest.approx(total_tokens(server) - before, rel=0.05)
    assert {cell.counted_by for cell in found.cells} == {"earlier replies"}
    assert total(found, "reply_tokens") >= sum(server.calls.values()) - n_before
    assert total(estimated(project), "calls") == 0


def total_tokens(server) -> int:
    return sum(map(counted, server.bodies))


def test_a_tokenizer_counts_prompts_before_any_was_sent(project, server, tmp_path):
    byte_tokenizer().save_pretrained(tmp_path / "tokenizer")
    lay_out(project, server.url, 6, clients__judge__tokenizer=str(tmp_path / "tokenizer"))
    found = estimated(project)
    run_both()
    assert total(found, "calls") == sum(server.calls.values())
    true = sum(
        sum(len(message["role"]) + len(message["content"].encode()) + 3 for message in body["messages"]) + 11 for body in server.bodies
    )
    assert total(found, "prompt_tokens") == pytest.approx(true, rel=0.05)
    assert {cell.counted_by for cell in found.cells} == {"tokenizer"}


def test_calls_of_several_explainers_are_counted_once_each(project, server):
    explainers = {
        "lexical": {},
        "default": {"client": "judge", "max_latents": 4},
        "best": {"kind": "best_of_k", "client": "judge", "k": 2, "n_validation": 2, "max_latents": 3},
        "single": {"kind": "single_token"},
    }
    lay_out(project, server.url, 5, explainers=explainers)
    found = estimated(project)
    run_both()
    assert {cell.cell.split()[-1]: cell.calls for cell in found.cells}["default"] == 4
    assert total(found, "calls") == sum(server.calls.values())


def test_nulls_that_neighbour_contrasts_leave_without_a_partner_are_not_counted(project, server):
    lay_out(project, server.url, 4)
    examples(project / "data" / "examples" / SAE, 4, are_supplied=True)
    found = estimated(project)
    run_both()
    assert total(found, "calls") == sum(server.calls.values())


def test_a_prompt_that_is_not_sent_is_not_counted(project, server):
    lay_out(project, server.url, 3, clients__judge__context=256)
    found = estimated(project)
    run_both()
    assert total(found, "calls") == sum(server.calls.values()) == 0


def test_examples_that_are_not_drawn_are_planned(project, server):
    lay_out(project, server.url, 6)
    exact = estimated(project)
    (project / "data" / "examples" / SAE / "manifest.json").unlink()
    planned = estimated(project)
    assert all(cell.planned for cell in planned.cells)
    # stand-in windows of a small corpus may repeat, and a question is counted once
    assert [cell.calls for cell in planned.cells] == pytest.approx([cell.calls for cell in exact.cells], rel=0.02)


def test_every_sae_that_is_not_drawn_is_counted_with_windows_of_its_own(project, server):
    lay_out(project, server.url, 6)
    params = load_params(project / "params.yaml")
    one, other = ({example.text for of in planned_examples(params, sae, 6).values() for example in of} for sae in ("one", "other"))
    assert len(one & other) < len(one) / 2


def test_the_price_is_that_of_the_tokens_and_unknown_without_prices(project, server):
    lay_out(project, server.url, 3)
    assert {cell.usd for cell in estimated(project).cells} == {None}
    lay_out(project, server.url, 3, run__clients__judge__price={"prompt": 2.0, "reply": 10.0})
    for cell in estimated(project).cells:
        assert cell.usd == pytest.approx((2 * cell.prompt_tokens + 10 * cell.reply_tokens) / 1e6)


def test_the_lines_say_calls_money_and_what_is_not_known(project, server):
    lay_out(project, server.url, 3)
    text = "\n".join(said(estimated(project)))
    assert "calls" in text and "price unknown" in text and "assumed" in text
    lay_out(project, server.url, 3, run__clients__judge__price={"prompt": 2.0, "reply": 10.0})
    assert "at most $" in "\n".join(said(estimated(project)))


def test_a_missing_key_stops_no_estimate(project, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    lay_out(project, "https://judge.example.org/v1", 3, run__clients__judge__key_env="NO_SUCH_KEY")
    assert total(estimated(project), "calls") > 3


def test_the_smallest_difference_follows_from_latents_and_spread(project, server):
    lay_out(project, server.url, 6)
    (assumed,) = estimated(project).detectable
    assert (assumed.n_latents, assumed.measured) == (6, False)
    assert assumed.difference == pytest.approx(2.8016 * 0.15 * (2 / 6) ** 0.5, rel=1e-3)
    lay_out(project, server.url, 11)
    run_both()
    (measured,) = estimated(project).detectable
    rows = pq.read_table(project / "data" / "scores" / SAE / "detection" / "scores.parquet").to_pylist()
    spread = 0.0  # this judge says the same of every window
    assert {row["auroc"] for row in rows if row["status"] == "ok"} == {0.5}
    assert (measured.measured, measured.spread, measured.difference) == (True, spread, smallest_detectable_with(0.0, 11, 0.0, 11))


def test_nothing_is_asked_and_nothing_is_written(project, server):
    lay_out(project, server.url, 3)
    before = {path for path in project.rglob("*") if ".cache" not in path.parts}
    estimated(project)
    assert not server.calls
    assert {path for path in project.rglob("*") if ".cache" not in path.parts} == before
    assert yaml.safe_load((project / "params.yaml").read_text())["examples"]["n_latents"] == 3


def letters(text: str, before: int) -> Answer:
    """Explains each time differently; to all else it writes what no scorer can read."""
    return judge(text, before) if text.startswith("Texts:") else completion("?")


@pytest.mark.parametrize(
    ("kind", "settings"), [("simulation", {"max_examples": 3, "null_latents": 2}), ("intruder", {"contrast": "random"})]
)
def test_calls_of_every_scorer_that_asks_are_exact(project, kind, settings):
    with loopback(letters) as server:
        lay_out(project, server.url, 6, scorers={"one": {"kind": kind, "client": "judge", **settings}}, max_failed_fraction=1.0)
        found = estimated(project)
        assert stage("explain") is None
        assert stage("score", "--scorer", "one") is None
        n_sent = sum(server.calls.values())
    expected = {
        "simulation": 6 + (6 + 2) * (3 + 3),
        "intruder": 6,  # one window a decile: no trial of four can be made
    }[kind]
    assert n_sent == expected
    assert total(found, "calls") == n_sent


def test_a_scorer_without_explanations_shows_its_difference_once(project, server):
    lay_out(project, server.url, 6, scorers={"intruder": {"client": "judge", "contrast": "random"}})
    assert [(one.explainer, one.scorer) for one in estimated(project).detectable] == [("none", "intruder")]


def test_calls_of_adaptive_judging_are_at_most_those_estimated(project, server):
    lay_out(project, server.url, 3, scorers={"detection": {"client": "judge", "adaptive": {"max_width": 0.9}}})
    whole = total(estimated(project), "calls")
    lay_out(project, server.url, 3, scorers={"detection": {"client": "judge"}})
    assert whole == total(estimated(project), "calls")
