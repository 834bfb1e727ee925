"""The explorer's data: every row, word, order and detail of it against the tables it was made from. The page itself: tests/browser."""

import base64
import json

import numpy as np
import pytest

from latentry import contracts, store
from latentry.explorer.labels import labels_of
from latentry.explorer.site import similar
from latentry.explorer.site.details import shown_examples
from latentry.explorer.site.words import file_of, words_of
from latentry.explorer.site.write import DETAILS_PER_CHUNK, write_site
from made_up_study import HOSTILE, make_study


def value_of(path):
    """What a chunk hands to the page."""
    name, _, value = path.read_text(encoding="utf-8").removeprefix("latentry_chunk(").removesuffix(")\n").partition(",")
    assert json.loads(name) == path.relative_to(path.parents[1] if path.parent.name != "data" else path.parent).with_suffix("").as_posix()
    return json.loads(value)


def numbers(packed):
    return np.frombuffer(base64.b64decode(packed), "<u4").tolist()


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"), n_latents=60, widths={"1k": 1024, "2k": 2048})


@pytest.fixture(scope="module")
def tables(study):
    return {name: store.read_table(study / "data" / "comparison", contracts.COMPARISON, name) for name in contracts.COMPARISON.tables}


@pytest.fixture(scope="module")
def site(study, tables, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")

    def embedded(texts):
        rows = np.random.default_rng(len(texts)).normal(size=(len(texts), 8)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    n = write_site(data=study / "data", tables=tables, settings={"Subject": "made up"}, out=out, embedded=embedded)
    assert n == value_of(out / "data" / "meta.js")["n_rows"]
    return out / "data"


@pytest.fixture(scope="module")
def rows(site):
    return [row for path in sorted((site / "rows").iterdir(), key=lambda path: int(path.stem)) for row in value_of(path)]


def test_every_latent_asked_for_has_a_row_in_the_samples_order(site, rows, study):
    meta = value_of(site / "meta.js")
    for sae in meta["saes"]:
        asked = store.read_table(study / "data" / "examples" / sae["name"], contracts.EXAMPLES, "latents.parquet").sort_by("rank")
        mine = rows[sae["first"] : sae["first"] + sae["n"]]
        assert [row[0] for row in mine] == asked["latent"].to_pylist()
        assert [row[1] for row in mine] == asked["status"].to_pylist()


def test_listed_scores_and_texts_are_those_of_the_comparison(site, rows, tables):
    meta, table = value_of(site / "meta.js"), tables["latents.parquet"].to_pylist()
    known = {(row["sae"], row["explainer"], row["scorer"], row["latent"]): row for row in table}
    n_seen = 0
    for sae in meta["saes"]:
        for latent, _, _, texts, scores, _ in rows[sae["first"] : sae["first"] + sae["n"]]:
            for explainer, scorer, value in scores:
                row = known[sae["name"], meta["explainers"][explainer], meta["scorers"][scorer]["name"], latent]
                assert value == pytest.approx(row["auroc"], rel=1e-3)
                assert texts[explainer] == row["explanation"]
                n_seen += 1
    assert n_seen == sum(row["auroc"] is not None for row in table)


def test_latents_of_a_signed_sae_are_called_by_their_direction_and_sign(tmp_path, rows):
    for sae, signed in (("signed", True), ("plain", False)):
        (tmp_path / "saes" / sae).mkdir(parents=True)
        (tmp_path / "saes" / sae / "evaluation.json").write_text(json.dumps({"width": 8, "signed": signed}))
    assert [labels_of(tmp_path, "signed")(latent) for latent in (0, 3, 4, 7)] == ["0+", "3+", "0-", "3-"]
    assert [labels_of(tmp_path, sae)(7) for sae in ("plain", "not there")] == ["7", "7"]
    assert [row[5] for row in rows] == [str(row[0]) for row in rows]


def test_every_word_finds_exactly_the_rows_that_hold_it(site, rows):
    wanted = {}
    for place, (latent, _, _, texts, _, _) in enumerate(rows):
        for text in [str(latent), *(text for text in texts if text)]:
            for word in words_of(text):
                wanted.setdefault(word, set()).add(place)
    found = {}
    for path in (site / "words").iterdir():
        for word, packed in value_of(path).items():
            assert file_of(word) == int(path.stem)
            found[word] = numbers(packed)
    assert {word: sorted(places) for word, places in wanted.items()} == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.S.A.'s ΣΊΣΥΦΟΣ, naïve", {"the", "u", "s", "a", "σίσυφος", "naïve"}),
        ("税金 and 3-digit numbers_like this", {"税", "金", "and", "3", "digit", "numbers", "like", "this"}),
        ("ﬁne Ⅷ x" + "y" * 60, {"fine", "viii", "x" + "y" * 39}),
        ("🐳 \u202e<b>", {"b"}),
    ],
)
def test_words_are_runs_of_letters_and_digits_in_any_script(text, words):
    assert set(words_of(text)) == words


def test_orders_are_sorted_with_missing_numbers_last(site, rows):
    meta = value_of(site / "meta.js")
    for place, order in enumerate(meta["orders"]):
        sequence = numbers(value_of(site / "orders" / f"{place}.js"))
        assert sorted(sequence) == list(range(len(rows)))
        values = [_sorted_by(rows[row], order, meta) for row in sequence]
        assert None not in values[: order["n"]] and set(values[order["n"] :]) <= {None}
        assert values[: order["n"]] == sorted(values[: order["n"]], reverse=True)


def _sorted_by(row, order, meta):
    if not order["explainer"]:
        return row[{"latent": 0, "frequency": 2}[order["name"]]]
    return next(
        (value for e, s, value in row[4] if (meta["explainers"][e], meta["scorers"][s]["name"]) == (order["explainer"], order["name"])),
        None,
    )


def test_details_stand_at_the_place_of_their_row_and_show_every_text_unchanged(site, rows, study):
    details = [one for path in sorted((site / "details").iterdir(), key=lambda path: int(path.stem)) for one in value_of(path)]
    assert [one["latent"] for one in details] == [row[0] for row in rows]
    assert len(value_of(site / "details" / "0.js")) == DETAILS_PER_CHUNK
    texts = store.read_table(study / "data" / "examples" / "topk-1k", contracts.EXAMPLES, "examples.parquet")["text"].to_pylist()
    shown = ["".join(piece if isinstance(piece, str) else piece[0] for piece in window[3]) for one in details for window in one["active"]]
    assert any(HOSTILE in text for text in texts) and any(HOSTILE in text for text in shown)
    assert set(shown) <= {text for sae in ("topk-1k", "topk-2k", "jumprelu-1k", "jumprelu-2k") for text in _texts(study, sae)}
    assert all(row is not None for one in details for row, _ in one["similar"])
    assert [match for one in details for match in one["matches"]] == [["topk-2k", 5, 0.91]]
    assert [read for one in details for read in one["inputs"]] == [["jsae", "lexical", "topk-1k", 7, -0.0456, HOSTILE]]


def _texts(study, sae):
    return store.read_table(study / "data" / "examples" / sae, contracts.EXAMPLES, "examples.parquet")["text"].to_pylist()


def test_a_window_of_each_decile_and_split_is_shown_strongest_first():
    rows = [
        {
            "kind": "activating",
            "split": split,
            "decile": decile,
            "rank": rank,
            "text": "ab",
            "spans": [0, 1, 1, 2],
            "activations": [0.0, float(decile)],
        }
        for decile in (1, 10, 4)
        for split in ("held_out", "explain")
        for rank in (1, 0)
    ]
    shown = shown_examples(rows)["active"]
    assert [(window[1], window[0]) for window in shown] == [(d, s) for d in (10, 4, 1) for s in ("explain", "held_out")]
    assert shown[0][3] == ["a", ["b", 10, 10.0]]


def test_nearest_is_exact_where_there_are_few_and_nearly_so_where_there_are_many(monkeypatch):
    chance = np.random.default_rng(3)
    centres = chance.normal(size=(40, 16))
    vectors = (centres[chance.integers(0, 40, 2000)] + 0.4 * chance.normal(size=(2000, 16))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    brute = np.sort(cosines, axis=1)[:, ::-1][:, :5]
    places, values = similar.nearest(vectors, 5)
    assert np.allclose(values, brute, atol=1e-5) and np.allclose(np.take_along_axis(cosines, places, 1), brute, atol=1e-5)
    monkeypatch.setattr(similar, "EXACT", 100)
    _, rough = similar.nearest(vectors, 5)
    assert np.mean(np.isclose(rough, brute, atol=1e-5)) > 0.95


def test_equal_explanations_are_similar_and_a_row_is_never_similar_to_itself():
    def embedded(texts):
        return np.eye(4, dtype=np.float32)[: len(texts)]

    found = similar.similar_rows([(0, "ships"), (1, "taxes"), (2, "ships"), (2, "boats")], embedded)
    assert found[0][0] == (2, 1.0) and found[2][0] == (0, 1.0)
    assert all(other != row for row, near in found.items() for other, _ in near)
    assert similar.similar_rows([(0, "alone")], embedded) == {}
