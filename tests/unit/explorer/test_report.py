"""The report: it reads alone, escapes what it shows, and shows a failure by its status and never as a score."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentry import contracts, plots, store
from latentry.errors import ContractError
from latentry.explorer.report import report_html, write_report
from latentry.explorer.samples import level_of, pieces_of
from latentry.safe_text import visible
from made_up_study import HOSTILE, make_study

SETTINGS = {"Subject": "a small model", "Corpus": "<b>books</b>"}


class Page(HTMLParser):
    """Tags with their attributes, the text in reading order, and what stands in each script element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag in ("style", "script")
        self.scripts += [""] if tag == "script" else []

    def handle_endtag(self, tag):
        self._hidden = self._hidden and tag not in ("style", "script")

    def handle_data(self, data):
        self.text += "" if self._hidden else data
        if self.scripts and self.tags[-1][0] == "script" and self._hidden:
            self.scripts[-1] += data


def tables_of(root):
    return {name: store.read_table(root / "data" / "comparison", contracts.COMPARISON, name) for name in contracts.COMPARISON.tables}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"), n_latents=15, widths={"1k": 1024, "2k": 2048})


@pytest.fixture(scope="module")
def html(study):
    return report_html(data=study / "data", tables=tables_of(study), settings=SETTINGS)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_hostile_text_is_shown_and_never_run(page):
    assert visible(HOSTILE) in page.text
    assert "<b>books</b>" in page.text
    assert "img" not in [name for name, _ in page.tags]
    assert [attrs.get("type") for name, attrs in page.tags if name == "script"] == ["application/json", None, None]
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]


def test_text_of_models_and_corpora_cannot_turn_the_direction_of_the_page(html):
    outside = re.sub(r"<bdi>.*?</bdi>", "", html, flags=re.DOTALL)
    assert "\u202e" not in html
    assert "\u202c" in html and "\u202c" not in outside


def test_what_is_no_character_of_a_page_is_shown_as_standing_there_and_scripts_keep_their_marks():
    assert visible("a\0b\x1b[31m\x07\x7f\x86\u202eexe.png") == "a␀b␛[31m␇␡\ufffd\ufffdexe.png"
    kept = "tab\tline\n\u200fעברית\u200e \u2067نص\u2069 👩\u200d🔬 e\u0301"
    assert visible(kept) == kept


def test_the_page_asks_for_nothing_outside_itself(page, html):
    loaded = [value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href", "xlink:href") and value]
    assert {value for value in loaded if not value.startswith("#")} == {"latents.html"}  # a link to the explorer beside it
    assert not re.search(r"@import|url\((?!['\"]?#)", re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL))
    assert "link" not in [name for name, _ in page.tags]


def test_a_browser_may_run_the_pages_own_scripts_and_load_nothing(page):
    """What the scripts would load, or what a hole in the escaping would run, the page's policy refuses."""
    [policy] = [attrs["content"] for name, attrs in page.tags if name == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"]
    allowed = dict(directive.split(" ", 1) for directive in policy.split("; "))
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts[1:]]
    assert allowed["default-src"] == "'none'"
    assert allowed["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert not {"connect-src", "img-src", "font-src", "frame-src", "object-src", "worker-src"} & allowed.keys()


def test_every_chart_has_a_picture_for_who_runs_no_script_and_rows_for_who_does(page):
    charts = [attrs["data-chart"] for _, attrs in page.tags if "data-chart" in attrs]
    assert charts == list(json.loads(page.scripts[0]))
    assert len(charts) == 9 == [name for name, _ in page.tags].count("svg")


def test_a_name_cannot_close_the_script_that_holds_it():
    chart = plots.frontier([{"sae": "</script><script>alert(1)</script>\u2028", "loss": "<!--", "width": 8, "l0": 2.0, "fvu": 0.5}])
    text = plots.to_json({"</script>": chart})
    assert not re.search(r"[<>&\u2028]", text)
    [row] = json.loads(text)["</script>"]["data"]["values"]
    assert (row["sae"], row["loss"]) == ("</script><script>alert(1)</script>\u2028", "<!--")


def test_every_sae_and_explainer_has_its_score_interval_null_and_counts(study, page):
    text = " ".join(page.text.split())
    for cell in tables_of(study)["cells.parquet"].to_pylist():
        if cell["headline"]:
            assert f"{cell['mean']:.3f} {cell['low']:.3f} to {cell['high']:.3f} {cell['n']} of {cell['n_asked']}" in text
            assert f"null {cell['null']:.3f} n = {cell['n_lift']}" in text


def test_it_says_what_the_numbers_do_not_cover(page):
    text = " ".join(page.text.split())
    assert "do not cover another corpus, another seed of training or another judge" in text
    assert "random_subject" in text


def test_a_failed_explanation_is_shown_by_its_status(page):
    statuses = [attrs for name, attrs in page.tags if name == "span" and attrs.get("class") == "status"]
    assert statuses
    assert "None" not in page.text and "nan" not in page.text.split()


def test_column_headings_say_what_they_head(page):
    headings = [attrs for name, attrs in page.tags if name == "th"]
    assert headings and all(attrs.get("scope") for attrs in headings)


def test_it_can_be_made_where_the_latents_were_not_pulled(tmp_path):
    root = make_study(tmp_path, n_latents=15, widths={"1k": 1024})
    for sae in ("topk-1k", "jumprelu-1k"):
        (root / "data" / "latents" / sae / "statistics.parquet").unlink()
    assert "Fires on" not in report_html(data=root / "data", tables=tables_of(root), settings=SETTINGS)


def test_a_report_that_fails_leaves_the_old_one(tmp_path):
    root = make_study(tmp_path, n_latents=15, widths={"1k": 1024})
    tables = tables_of(root)
    out = root / "report" / "index.html"
    out.write_text("old", encoding="utf-8")
    (root / "data" / "examples" / "topk-1k" / "manifest.json").unlink()
    with pytest.raises(ContractError, match="dvc repro examples"):
        write_report(data=root / "data", tables=tables, settings=SETTINGS, out=out)
    assert out.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(("activation", "level"), [(0.0, 0), (0.001, 1), (1.0, 1), (1.001, 2), (5.0, 5), (9.01, 10), (10.0, 10)])
def test_level_is_the_tenth_of_the_largest_activation_rounded_up(activation, level):
    assert level_of(activation, 10.0) == level


def test_pieces_mark_whole_tokens_with_their_activation():
    pieces = pieces_of("the old whale sank", (0, 3, 3, 7, 7, 13, 13, 18), (0.0, 2.0, 10.0, 0.0), 10.0)
    assert [(piece.text, piece.level, piece.activation) for piece in pieces] == [
        ("the", 0, 0),
        (" old", 2, 2),
        (" whale", 10, 10),
        (" sank", 0, 0),
    ]


def test_tokens_that_share_a_character_show_it_once_at_the_strongest():
    pieces = pieces_of("a🐋b", (0, 1, 1, 2, 1, 2, 2, 3), (0.0, 1.0, 4.0, 0.0), 4.0)
    assert [(piece.text, piece.level) for piece in pieces] == [("a", 0), ("🐋", 10), ("b", 0)]


@given(st.lists(st.tuples(st.text(min_size=1, max_size=4), st.floats(0, 10)), max_size=12))
def test_pieces_join_to_the_very_text(tokens):
    text = "".join(token for token, _ in tokens)
    spans, start = [], 0
    for token, _ in tokens:
        spans += [start, start + len(token)]
        start += len(token)
    assert "".join(piece.text for piece in pieces_of(text, spans, [value for _, value in tokens], 10.0)) == text


def with_rows(table, *rows):
    return pa.Table.from_pylist([*table.to_pylist(), *rows], schema=table.schema)


def test_what_is_scored_without_explanations_stands_beside_its_chance_and_without_a_text(study):
    tables = tables_of(study)
    cell, latent = tables["cells.parquet"].to_pylist()[0], tables["latents.parquet"].to_pylist()[0]
    none = {"explainer": "none", "scorer": "intruder"}
    numbers = {"mean": 0.4321, "null": None, "lift": None, "lift_low": None, "lift_high": None, "headline": True, "n_lift": 0}
    tables["cells.parquet"] = with_rows(tables["cells.parquet"], {**cell, **none, **numbers, "metric": "accuracy_random"})
    row = {**dict.fromkeys(latent), "sae": latent["sae"], "latent": latent["latent"], **none}
    row |= {"explanation_status": "ok", "status": "ok", "accuracy": 0.4, "firing_frequency": 0.01}
    tables["latents.parquet"] = with_rows(tables["latents.parquet"], row)
    text = " ".join(Page(report_html(data=study / "data", tables=tables, settings=SETTINGS)).text.split())
    assert "intruder intruders found, random contrastschance 0.2" in text
    assert "0.432" in text
    assert "none scored without one" in text


def test_scores_of_others_stand_beside_ours_with_their_definition(page):
    text = " ".join(page.text.split())
    assert "They are not one measure" in text
    assert "fuzz<script>" in text and "accuracy share of right answers" in text
    assert "0.710 0.660 to 0.7500.600 0.550 to 0.640+0.42 +0.10 to +0.6620 of 30 and 26" in text


def test_without_scores_of_others_the_page_does_not_speak_of_them(study):
    tables = tables_of(study)
    tables["imported.parquet"] = tables["imported.parquet"].slice(0, 0)
    assert "Scores of others" not in report_html(data=study / "data", tables=tables, settings=SETTINGS)


def test_jacobians_stand_beside_each_other_with_intervals_and_what_their_edges_explain(page):
    for said in ("Jacobians of MLPs", "0.0111 to 0.0135", "subject redrawn", "halves of one training", "\u22120.0081 to \u22120.0061"):
        assert said in page.text
    assert "1 of the 1 latents that have an explanation, of 1 that have explained inputs" in page.text
    assert "\u22120.0456" in page.text  # an edge keeps its sign
    assert "11 of the 40 latents that act on it have an explanation; those here hold 25 % of the strength" in page.text
    assert "3 no inputs" in page.text


def test_a_study_without_jacobians_says_nothing_of_them(study):
    tables = {name: table.slice(0, 0) if "jacobian" in name or "edge" in name else table for name, table in tables_of(study).items()}
    html = report_html(data=study / "data", tables=tables, settings=SETTINGS)
    assert "Jacobian" not in html
    assert "Explained edges" not in html
