"""The embedder's memory and order, with a model that answers by length; the real MiniLM where it is."""

from pathlib import Path

import numpy as np
import pytest

from latentry.embeddings import Embedder, weights_digest


class LengthModel:
    """Embeds a text as (its length, one where it is a query), and remembers what it was asked."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode_query(self, texts, **settings):
        return self._encode(texts, 1.0, settings)

    def encode_document(self, texts, **settings):
        return self._encode(texts, 0.0, settings)

    def _encode(self, texts, role, settings):
        assert settings["normalize_embeddings"]
        self.batches.append(texts)
        rows = np.array([[len(text), 1.0, role] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models" / "tiny"
    made.mkdir(parents=True)
    (made / "weights").write_bytes(b"one")
    return made


def embedder(folder: Path, cache: Path, model: LengthModel, batch: int = 4) -> Embedder:
    return Embedder(folder, "cpu", batch, cache, load=lambda *_: model)


def test_rows_come_in_the_order_asked_repeats_included(folder: Path, tmp_path: Path):
    rows = embedder(folder, tmp_path / "c.sqlite", LengthModel()).documents(["four", "a", "four", "eleven"])
    assert rows.dtype == np.float32 and rows.shape == (4, 3)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.allclose(rows[:, 0] / rows[:, 1], [4, 1, 4, 6])


def test_what_is_known_is_never_embedded_again_nor_the_model_loaded(folder: Path, tmp_path: Path):
    model = LengthModel()
    first = embedder(folder, tmp_path / "c.sqlite", model).documents(["a", "bb", "a"])
    assert model.batches == [["a", "bb"]]

    def load(*_):
        raise AssertionError("the model is not needed")

    again = Embedder(folder, "cpu", 4, tmp_path / "c.sqlite", load=load).documents(["a", "bb", "a"])
    assert again.tobytes() == first.tobytes()


def test_missing_texts_are_sorted_by_length_whatever_the_order_asked(folder: Path, tmp_path: Path):
    model = LengthModel()
    embedder(folder, tmp_path / "c.sqlite", model).documents(["ccc", "z", "bb", "a"])
    assert model.batches == [["a", "z", "bb", "ccc"]]


def test_other_weights_and_other_roles_are_other_vectors(folder: Path, tmp_path: Path):
    cache, model = tmp_path / "c.sqlite", LengthModel()
    made = embedder(folder, cache, model)
    assert not np.array_equal(made.documents(["a"]), made.queries(["a"]))
    (folder / "weights").write_bytes(b"two")
    changed = embedder(folder, cache, model)
    changed.documents(["a"])
    assert len(model.batches) == 3


def test_a_kill_loses_only_what_was_not_committed(folder: Path, tmp_path: Path):
    class Dying(LengthModel):
        def _encode(self, texts, role, settings):
            if self.batches:
                raise KeyboardInterrupt
            return super()._encode(texts, role, settings)

    texts = ["x" * n for n in range(1, 40)]
    with pytest.raises(KeyboardInterrupt):
        embedder(folder, tmp_path / "c.sqlite", Dying(), batch=1).documents(texts)
    model = LengthModel()
    embedder(folder, tmp_path / "c.sqlite", model, batch=1).documents(texts)
    assert [text for batch in model.batches for text in batch] == texts[16:]


def test_the_manifest_is_no_part_of_the_weights(folder: Path):
    before = weights_digest(folder)
    (folder / "manifest.json").write_text('{"sizes": {}}')
    assert weights_digest(folder) == before


def test_a_missing_folder_says_what_to_do(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="dvc repro models"):
        weights_digest(tmp_path / "nowhere")


class ShortModel(LengthModel):
    """Reads 130 tokens, of one letter each."""

    max_seq_length = 130

    def tokenizer(self, texts, **settings):
        assert settings["truncation"] is False
        return {"input_ids": [list(text) for text in texts]}


def test_texts_longer_than_the_model_reads_are_named_prompt_included(folder: Path, tmp_path: Path):
    made = embedder(folder, tmp_path / "c.sqlite", ShortModel())
    assert made.cut("document", ["a" * 130, "b" * 131, "short", "b" * 131]) == {"b" * 131}
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q: "}}')
    made = embedder(folder, tmp_path / "c.sqlite", ShortModel())
    assert made.cut("query", ["a" * 127, "a" * 128]) == {"a" * 128}
    assert made.cut("document", ["a" * 128]) == frozenset()


def test_short_texts_load_no_model_to_learn_that_they_are(folder: Path, tmp_path: Path):
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    assert Embedder(folder, "cpu", 4, tmp_path / "c.sqlite", load=lambda *_: pytest.fail("loaded")).cut("query", ["x" * 256]) == frozenset()


@pytest.mark.slow
def test_minilm_agrees_with_sentence_transformers_itself(tmp_path: Path):
    model = Path(__file__).parents[2] / "data/models/minilm"
    if not (model / "modules.json").exists():
        pytest.skip("data/models/minilm is not here; run `dvc repro models`")
    from sentence_transformers import SentenceTransformer

    texts = ["taxes and public debt", "the white whale", "ナルト 税金", "مال عام", "🐳🐳"]
    rows = Embedder(model, "cpu", 2, tmp_path / "c.sqlite").documents(texts)
    reference = SentenceTransformer(str(model), device="cpu", local_files_only=True).encode(texts, normalize_embeddings=True)
    assert np.allclose(rows, reference, atol=1e-5)
    query = Embedder(model, "cpu", 2, tmp_path / "c.sqlite").queries(["a tax on imports"])[0]
    long = "tax " * 2500
    whole = Embedder(model, "cpu", 2, tmp_path / "c.sqlite")
    assert whole.cut("query", [long, "tax " * 200]) == {long}
    assert np.allclose(whole.queries([long]), whole.queries(["tax " * 254]), atol=1e-5)
    assert rows[0] @ query > rows[1] @ query
