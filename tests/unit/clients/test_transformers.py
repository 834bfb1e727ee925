"""The client in process, on tiny random models, against plain transformers: one full forward, and `generate`."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore
from latentry.clients.transformers import Config, build
from latentry.records import Message, Request, Status
from loopback import Run, request
from tiny_tokenizer import byte_tokenizer

LONGEST = 400
SIZES = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LONGEST,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "initializer_range": 0.3,
}
"""An initializer this wide makes logits differ by far more than rounding, so that greedy choices have no ties."""
CLOSE = 2e-5
"""float32 sums in another order."""
SHARED = "Worked examples that every request begins with, long enough to be worth running once. "


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def folder(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / request.param
    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)) if request.param == "llama" else Qwen2ForCausalLM(Qwen2Config(**SIZES))
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    (folder / "manifest.json").write_text(json.dumps({"contract": "model", "sizes": {}, "files": {"model.safetensors": "a"}}))
    return folder


def client_of(folder: Path, **settings):
    config = Config(kind="transformers", model=folder.name, dtype="float32", **settings)
    return build(config, name="judge", run=Run(), models=folder.parent, device="cpu")


def asked(text: str, **wanted) -> Request:
    return dataclasses.replace(
        request(text, **wanted), messages=(Message(role="system", content=SHARED), Message(role="user", content=text))
    )


def plain_prompt(folder: Path, asked: Request) -> torch.Tensor:
    turns = [{"role": message.role, "content": message.content} for message in asked.messages]
    return AutoTokenizer.from_pretrained(folder).apply_chat_template(
        turns, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )


GRADED = [asked("a window of the text " * n, alternatives=("yes", "Yes", " no", "yep"), max_tokens=1) for n in (1, 3, 2, 1, 5)]
GRADED += [asked("an explanation that two share: " + end, alternatives=("yes", "no"), max_tokens=1) for end in ("first", "the second")]


@torch.inference_mode()
def test_log_probabilities_are_those_of_a_plain_forward(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    client = client_of(folder)
    client.batches(GRADED, 4)
    for reply, one in zip(client.answer(GRADED), GRADED, strict=True):
        prompt = plain_prompt(folder, one)
        logprobs = model(prompt).logits[0, -1].log_softmax(-1)
        first = {text: AutoTokenizer.from_pretrained(folder).encode(text, add_special_tokens=False)[0] for text in reply.alternatives}
        assert dict(reply.alternatives) == pytest.approx({text: float(logprobs[token]) for text, token in first.items()}, abs=CLOSE)
        assert (reply.status, reply.prompt_tokens, reply.reply_tokens) == (Status.OK, prompt.shape[1], 1)


def test_texts_that_begin_with_one_token_appear_once(folder):
    (reply,) = client_of(folder).answer([GRADED[0]])
    assert list(reply.alternatives) == ["yes", "Yes", " no"]


def test_a_request_has_in_any_batch_the_reply_it_has_alone(folder):
    together = client_of(folder).answer(GRADED)
    shared = client_of(folder)
    shared.batches(GRADED, 2)
    for one, batched in zip(GRADED, together, strict=True):
        for alone in (client_of(folder).answer([one])[0], shared.answer([one])[0]):
            assert dict(batched.alternatives) == pytest.approx(dict(alone.alternatives), abs=CLOSE)


def test_a_batch_leaves_the_shared_beginning_as_it_was(folder):
    client = client_of(folder)
    client.batches(GRADED, 3)
    first = client.answer(GRADED[:3])
    client.answer([*GRADED[3:], asked("write", max_tokens=9)])
    assert client.answer(GRADED[:3]) == first


@torch.inference_mode()
def test_greedy_texts_are_those_of_generate(folder):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    requests = [asked("say something " * n, max_tokens=limit) for n, limit in ((1, 12), (4, 30), (2, 5), (3, 30))]
    replies = client_of(folder).answer([*requests, GRADED[0]])
    for reply, one in zip(replies, requests, strict=False):
        prompt = plain_prompt(folder, one)
        written = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=one.max_tokens, do_sample=False, pad_token_id=2
        )[0, prompt.shape[1] :]
        assert reply.text == tokenizer.decode(written, skip_special_tokens=True)
        assert reply.reply_tokens == len(written)
        assert reply.status is (Status.OK if written[-1] == 1 else Status.TRUNCATED)
    assert replies[-1].alternatives


def test_writing_ends_at_the_end_token(folder):
    """Draws at a high temperature meet the end token now and then."""
    replies = client_of(folder).answer([asked("go on", max_tokens=60, temperature=50.0, sample=i) for i in range(12)])
    ended = [reply for reply in replies if reply.status is Status.OK]
    cut = [reply for reply in replies if reply.status is Status.TRUNCATED]
    assert ended and cut
    assert all(reply.reply_tokens <= 60 for reply in ended)
    assert all(reply.reply_tokens == 60 and reply.detail for reply in cut)


def test_draws_depend_on_the_request_alone(folder):
    requests = [asked("draw", max_tokens=10, temperature=1.0, sample=i) for i in range(4)]
    together, backwards = client_of(folder).answer(requests), client_of(folder).answer(requests[::-1])[::-1]
    assert [reply.text for reply in together] == [reply.text for reply in backwards]
    assert len({reply.text for reply in together}) > 1


def test_a_prompt_beyond_the_model_is_a_status_and_the_others_are_answered(folder):
    long, short = client_of(folder).answer([asked("x" * LONGEST, alternatives=("yes",)), GRADED[0]])
    assert long.status is Status.UNSUPPORTED
    assert f"exceeds the model's {LONGEST}" in long.detail
    assert short.status is Status.OK


def test_bfloat16_gives_graded_answers_without_ties(folder):
    """Logits in bfloat16 steps would make many of these differences equal."""
    client = build(Config(kind="transformers", model=folder.name), name="judge", run=Run(), models=folder.parent, device="cpu")
    requests = [asked(f"window number {i}", alternatives=("yes", "no"), max_tokens=1) for i in range(30)]
    differences = {reply.alternatives["yes"] - reply.alternatives["no"] for reply in client.answer(requests)}
    assert len(differences) == 30


def test_replies_in_the_store_need_no_weights(folder, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(folder, models / "m")

    def pool() -> ClientPool:
        configs = {"judge": Config(kind="transformers", model="m", dtype="float32")}
        return ClientPool(configs, {"judge": Run(batch=2)}, models=models, store=ReplyStore(tmp_path / "replies"))

    first = pool().asker("judge", "test")(GRADED)
    for path in (models / "m").iterdir():
        if path.name != "manifest.json":
            path.unlink()
    assert pool().asker("judge", "test")(GRADED[::-1]) == first[::-1]
    assert all(reply.status is Status.OK for reply in first)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_batches_hold_every_request_once(folder, size):
    plan = client_of(folder).batches(GRADED, size)
    assert sorted(i for batch in plan for i in batch) == list(range(len(GRADED)))
    assert max(map(len, plan)) <= size


def test_requests_that_share_a_long_beginning_are_answered_together(folder):
    """Two explanations in turn, windows of one length: neighbours in the list share nothing."""
    requests = [asked(f"{explanation * 60} window {i}", alternatives=("yes",)) for i in range(4) for explanation in "ab"]
    plan = client_of(folder).batches(requests, 4)
    assert sorted(map(sorted, plan)) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_the_identity_names_weights_and_numbers_not_the_device(folder):
    one = client_of(folder)
    assert set(one.identity) == {"kind", "weights", "dtype"}
    again = {"contract": "model", "key": "made by other code", "sizes": {}, "files": {"model.safetensors": "a"}}
    (folder / "manifest.json").write_text(json.dumps(again))
    assert client_of(folder).identity["weights"] == one.identity["weights"]
    (folder / "manifest.json").write_text(json.dumps(again | {"files": {"model.safetensors": "b"}}))
    assert client_of(folder).identity["weights"] != one.identity["weights"]


CONTINUED = [asked("a window " * n, continuation=" of the text" * m) for n, m in ((1, 1), (3, 2), (2, 1), (2, 3))]
CONTINUED += [asked("a window ", continuation=" of the sea"), asked("a window ", continuation="!")]


@torch.inference_mode()
def test_a_continuation_has_the_log_probabilities_of_a_plain_forward_its_first_token_too(folder):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    client = client_of(folder)
    client.batches(CONTINUED, 4)
    for reply, one in zip(client.answer(CONTINUED), CONTINUED, strict=True):
        prompt = plain_prompt(folder, one)[0].tolist()
        further = tokenizer.encode(one.continuation, add_special_tokens=False)
        logprobs = model(torch.tensor([prompt + further])).logits[0].log_softmax(-1)
        wanted = [float(logprobs[len(prompt) - 1 + place, token]) for place, token in enumerate(further)]
        assert reply.continuation == pytest.approx(wanted, abs=CLOSE)
        assert (reply.status, reply.prompt_tokens, reply.reply_tokens) == (Status.OK, len(prompt) + len(further), 0)


def test_given_texts_of_like_length_are_run_together(folder):
    requests = [asked("one prompt", continuation="x" * n) for n in (1, 200, 2, 190)]
    requests += [asked("one prompt", slots=("x" * n,), alternatives=("0",)) for n in (3, 180)]
    assert sorted(map(sorted, client_of(folder).batches(requests, 3))) == [[0, 2, 4], [1, 3, 5]]


SLOTTED = [
    asked("a window " * n, slots=("the\t", "?\nold\t", "?\nsea\t")[:m], alternatives=("0", "1", "07", "9")) for n, m in ((1, 3), (4, 1))
]
SLOTTED += [asked("an explanation that two share: " + end, slots=("a\t", "?\nbc\t"), alternatives=("0", "9")) for end in ("one", "three")]


@torch.inference_mode()
def test_slots_have_the_log_probabilities_of_a_plain_forward_over_the_whole_text(folder):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    client = client_of(folder)
    mixed = [*SLOTTED, *CONTINUED, *GRADED]
    client.batches(mixed, len(mixed))
    for reply, one in zip(client.answer(mixed), SLOTTED, strict=False):
        row = plain_prompt(folder, one)[0].tolist()
        assert len(reply.slots) == len(one.slots)
        for found, text in zip(reply.slots, one.slots, strict=True):
            row += tokenizer.encode(text, add_special_tokens=False)
            logprobs = model(torch.tensor([row])).logits[0, -1].log_softmax(-1)
            first = {level: tokenizer.encode(level)[0] for level in found}
            assert dict(found) == pytest.approx({level: float(logprobs[token]) for level, token in first.items()}, abs=CLOSE)
        assert set(found) == set(one.alternatives) - {"07"}  # its first token is that of "0"
        assert (reply.status, reply.prompt_tokens, reply.reply_tokens) == (Status.OK, len(row), 0)


def test_slots_come_back_from_the_store_as_they_went_in(folder, tmp_path):
    configs = {"judge": Config(kind="transformers", model=folder.name, dtype="float32")}
    pool = ClientPool(configs, {"judge": Run(batch=2)}, models=folder.parent, store=ReplyStore(tmp_path))
    ask = pool.asker("judge", "test")
    first = ask(SLOTTED)
    assert ask(SLOTTED) == first and all(reply.key for reply in first)
    fewer = ask([dataclasses.replace(SLOTTED[0], slots=SLOTTED[0].slots[:1])])  # another request, another reply
    assert [len(reply.slots) for reply in fewer] == [1]


def test_only_texts_of_one_token_can_be_graded_in_slots(folder, tmp_path):
    configs = {"judge": Config(kind="transformers", model=folder.name, dtype="float32")}
    pool = ClientPool(configs, {"judge": Run(batch=2)}, models=folder.parent, store=ReplyStore(tmp_path))
    assert pool.asker("judge", "test").gradable(["9", "10", ""]) == ("9",)


def test_continuations_change_no_beginning_that_others_use(folder):
    client = client_of(folder)
    mixed = [*GRADED, *CONTINUED]
    client.batches(mixed, 8)
    first = client.answer(mixed)
    client.answer(CONTINUED)
    assert client.answer(mixed) == first
    alone = [client_of(folder).answer([one])[0] for one in mixed]
    for one, other in zip(first, alone, strict=True):
        assert one.continuation == pytest.approx(other.continuation, abs=CLOSE)
        assert dict(one.alternatives) == pytest.approx(dict(other.alternatives), abs=CLOSE)


def test_a_base_model_is_asked_in_plain_text(folder):
    turns = (Message(role="system", content="S"), Message(role="user", content="Q"))
    client = client_of(folder, chat=False)
    assert client.n_tokens(turns) == len("S\n\nQ\n")
    assert client.identity != client_of(folder).identity
    (reply,) = client.answer([Request(messages=turns, max_tokens=60)])
    assert "\n\n" not in reply.text


def test_a_continuation_that_does_not_fit_is_a_status(folder):
    (reply,) = client_of(folder).answer([request("a", continuation="b" * LONGEST)])
    assert reply.status is Status.UNSUPPORTED
