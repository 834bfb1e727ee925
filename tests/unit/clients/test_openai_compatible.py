"""What each answer of an endpoint means, and which endpoints are refused."""

import pytest

from latentry.clients.openai_compatible import Config, build
from latentry.errors import EndpointError, ParamsError
from latentry.records import Message, Request, Status
from loopback import Answer, Run, completion, failure, loopback, request
from tiny_tokenizer import byte_tokenizer


def answer_of(pool_at, answer: Answer, **wanted):
    with loopback(lambda *_: answer) as server:
        (reply,) = pool_at(server.url, retries=0).asker("judge", "test")([request("a", **wanted)])
        return reply, server.bodies[0]


def test_a_reply_carries_text_tokens_and_the_served_model(pool_at):
    reply, body = answer_of(pool_at, completion("the sea"))
    assert (reply.status, reply.text, reply.model, reply.prompt_tokens, reply.reply_tokens) == (Status.OK, "the sea", "served-model", 7, 3)
    assert body == {"model": "asked-model", "messages": [{"role": "user", "content": "a"}], "max_tokens": 8, "temperature": 0.0}


def test_log_probabilities_come_by_exact_token(pool_at):
    returned = {"Yes": -0.1, " yes": -2.5, "no": -3.0, "maybe": float("-inf")}
    reply, body = answer_of(pool_at, completion("Yes", finish="length", logprobs=returned), alternatives=("yes", "no"), max_tokens=1)
    assert reply.status is Status.OK
    assert dict(reply.alternatives) == {"Yes": -0.1, " yes": -2.5, "no": -3.0}
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)


SCHEMA = '{"type": "object"}'


def test_a_schema_is_sent_and_left_out_where_the_server_does_not_take_it(pool_at):
    def rule(asked: str, before: int) -> Answer:
        return failure(400, "response_format is not supported") if (asked, before) == ("a", 0) else completion("[1]")

    with loopback(rule) as server:
        ask = pool_at(server.url, concurrency=1).asker("judge", "test")
        replies = ask([request("a", schema=SCHEMA), request("b", schema=SCHEMA)])
        sent = ["response_format" in body for body in server.bodies]
    assert [reply.text for reply in replies] == ["[1]", "[1]"]
    assert sent == [True, False, False]
    assert server.bodies[0]["response_format"]["json_schema"]["schema"] == {"type": "object"}


def completed(text: str, *, finish: str = "stop", **logprobs) -> Answer:
    """An OpenAI completion, of the kind that base models give."""
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": logprobs or None}
    return Answer(body={"object": "text_completion", "model": "base", "choices": [choice], "usage": {"prompt_tokens": 4}})


BASE = {"api": "completions"}


def test_a_base_model_continues_the_turns_as_text(pool_at):
    turns = (Message(role="system", content="S"), Message(role="user", content="Q"), Message(role="assistant", content="A"))
    asked = Request(messages=(*turns, Message(role="user", content="Q2\n\nmore")), max_tokens=5)
    with loopback(lambda *_: completed("yes")) as server:
        (reply,) = pool_at(server.url, config=BASE).asker("judge", "test")([asked])
        body = server.bodies[0]
    assert (reply.status, reply.text, reply.model, reply.prompt_tokens) == (Status.OK, "yes", "base", 4)
    assert (body["prompt"], body["stop"]) == ("S\n\nQ\nA\n\nQ2\nmore\n", ["\n\n"])


def test_a_base_model_grades_first_tokens(pool_at):
    answer = completed("Yes", finish="length", tokens=["Yes"], token_logprobs=[-0.1], top_logprobs=[{"Yes": -0.1, " no": -2.0}])
    with loopback(lambda *_: answer) as server:
        (reply,) = pool_at(server.url, config=BASE).asker("judge", "test")([request("a", alternatives=("yes", "no"), max_tokens=1)])
    assert (reply.status, dict(reply.alternatives)) == (Status.OK, {"Yes": -0.1, " no": -2.0})


def echo_of(prompt: str, _: int) -> Answer:
    """Letters as tokens, each less likely than the one before; one token more than asked, as vLLM writes it."""
    tokens = [*prompt, "!"]
    values = [None, *(-float(at) for at in range(1, len(tokens)))]
    return completed(prompt + "!", finish="length", tokens=tokens, token_logprobs=values, text_offset=list(range(len(tokens))))


def test_the_tokens_of_a_continuation_are_graded_from_the_echo(pool_at):
    with loopback(echo_of) as server:
        (reply,) = pool_at(server.url, config=BASE).asker("judge", "test")([request("abc", continuation=" xy")])
        assert server.bodies[0]["prompt"] == "abc\n xy"
    assert (reply.status, reply.continuation) == (Status.OK, (-4.0, -5.0, -6.0))


@pytest.mark.parametrize("config", [BASE, {}])
def test_an_endpoint_that_echoes_nothing_is_unsupported_and_asked_again_next_time(pool_at, config):
    with loopback(lambda *_: completed("x")) as server:
        ask = pool_at(server.url, config=config).asker("judge", "test")
        replies = [ask([request("a", continuation="b")])[0] for _ in range(2)]
    assert {reply.status for reply in replies} == {Status.UNSUPPORTED}
    assert all(reply.detail and not reply.continuation for reply in replies)


def test_a_prompt_beyond_the_context_is_counted_and_not_sent(pool_at):
    with loopback(lambda *_: completion("fine")) as server:
        ask = pool_at(server.url, config={"context": 256}).asker("judge", "test")
        long, short = ask([request("word " * 300), request("word")])
        assert sum(server.calls.values()) == 1
        assert (ask.fits(request("word " * 300).messages, 8), ask.fits(request("word").messages, 8)) == (False, True)
    assert (long.status, short.status) == (Status.UNSUPPORTED, Status.OK)
    assert "256" in long.detail


def test_a_tokenizer_counts_with_its_chat_template(pool_at, tmp_path):
    byte_tokenizer().save_pretrained(tmp_path)
    client = pool_at("http://localhost:1/v1", config={"tokenizer": str(tmp_path)}).client("judge")
    assert client.n_tokens(request("the whale").messages) == len("<user\nthe whale><assistant\n")  # each of the four signs is one token


def test_a_folder_without_tokenizer_is_named(pool_at, tmp_path):
    with pytest.raises(ParamsError, match=r"clients\.judge\.tokenizer"):
        pool_at("http://localhost:1/v1", config={"tokenizer": str(tmp_path)}).client("judge").n_tokens(request("a").messages)


def test_a_web_page_everywhere_is_no_endpoint(pool_at):
    page = Answer(body="<!DOCTYPE html><html><body>Welcome</body></html>", is_html=True)
    with loopback(lambda *_: page) as server, pytest.raises(EndpointError, match=r"web page.*base_url") as raised:
        pool_at(server.url, retries=0).asker("judge", "test")([request(f"q{i}") for i in range(9)])
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_not_followed(pool_at, status):
    with loopback(lambda *_: completion("elsewhere")) as other:
        elsewhere = Answer(status=status, body="", headers={"location": f"{other.url}/chat/completions"})
        with loopback(lambda *_: elsewhere) as server, pytest.raises(EndpointError, match="sends us to http://127"):
            pool_at(server.url).asker("judge", "test")([request("a")])
        assert not other.bodies


def test_an_endpoint_without_log_probabilities_says_so(pool_at):
    reply, _ = answer_of(pool_at, completion("Yes"), alternatives=("yes", "no"))
    assert not reply.alternatives
    assert "no log-probabilities" in reply.detail


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (completion("cut in the mid", finish="length"), Status.TRUNCATED),
        (completion("cut in the mid", finish="LENGTH"), Status.TRUNCATED),
        (completion("cut in the mid", finish="max_tokens"), Status.TRUNCATED),
        (completion("cut in the mid", finish="MAX_TOKENS"), Status.TRUNCATED),
        (completion("cut in the mid", finish="error"), Status.CLIENT_ERROR),
        (completion("cut in the mid", finish="abort"), Status.CLIENT_ERROR),
        (completion("", finish="tool_calls"), Status.CLIENT_ERROR),
        (completion(None, refusal="I will not"), Status.REFUSED),
        (completion("", finish="content_filter"), Status.REFUSED),
        (failure(400, "filtered", code="content_filter"), Status.REFUSED),
        (failure(403, "flagged", metadata={"reasons": ["violence"], "flagged_input": "a"}), Status.REFUSED),
        (failure(400, "too long"), Status.CLIENT_ERROR),
        (Answer(body="<html><body>Bad gateway</body></html>", is_html=True), Status.CLIENT_ERROR),
        (Answer(body="{ broken"), Status.CLIENT_ERROR),
        (Answer(body={"answer": 42}), Status.CLIENT_ERROR),
        (Answer(body={"choices": []}), Status.CLIENT_ERROR),
        (Answer(body=[1, 2]), Status.CLIENT_ERROR),
        (Answer(body={"choices": [{"message": None}]}), Status.CLIENT_ERROR),
        (Answer(body={"error": {"code": 502, "message": "provider down"}}), Status.CLIENT_ERROR),
    ],
)
def test_each_unhappy_answer_is_a_status_with_a_reason(pool_at, answer, status):
    with loopback(lambda asked, _: answer if asked == "a" else completion("fine")) as server:
        reply, _ = pool_at(server.url, retries=0, concurrency=1).asker("judge", "test")([request("a"), request("b")])
    assert reply.status is status
    assert reply.detail


@pytest.mark.parametrize("finish", ["stop", "STOP", "eos", "end_turn", "stop_sequence", None])
def test_a_natural_end_is_fine_and_an_untold_one_where_there_is_text(pool_at, finish):
    whole = completion("the sea", finish=finish)
    assert answer_of(pool_at, whole)[0].status is Status.OK
    empty, _ = answer_of(pool_at, completion("", finish=finish), temperature=1.0)
    assert empty.status is (Status.CLIENT_ERROR if finish is None else Status.OK)


@pytest.mark.parametrize("usage", [{"prompt_tokens": 2**70, "completion_tokens": -3}, {"prompt_tokens": 1e300}, {"prompt_tokens": True}])
def test_a_usage_that_cannot_be_is_unknown(pool_at, usage):
    reply, _ = answer_of(pool_at, Answer(body=completion("the sea").body | {"usage": usage}))
    assert (reply.status, reply.prompt_tokens, reply.reply_tokens) == (Status.OK, 0, 0)


def test_a_log_probability_above_0_is_unreadable_and_rounding_is_not(pool_at):
    impossible, _ = answer_of(pool_at, completion("Yes", logprobs={"Yes": 5.0, "No": -1.0}), alternatives=("yes", "no"))
    assert (impossible.status, dict(impossible.alternatives)) == (Status.CLIENT_ERROR, {})
    assert "above 0" in impossible.detail
    rounded, _ = answer_of(pool_at, completion("Yes", logprobs={"Yes": 1e-6, "No": -9.0}), alternatives=("yes", "no"))
    assert rounded.status is Status.OK


@pytest.mark.parametrize(
    "logprobs",
    [
        {"text_offset": [0, 2, 5], "tokens": ["a"], "token_logprobs": [-1.0]},
        {"text_offset": ["0", "2"], "tokens": ["a\n", "b"], "token_logprobs": [-1.0, -1.0]},
        {"text_offset": [0, 2], "tokens": ["a\n", "b"], "token_logprobs": [-1.0, 5.0]},
    ],
)
def test_an_echo_that_cannot_be_is_unsupported(pool_at, logprobs):
    with loopback(lambda *_: completed("x", **logprobs)) as server:
        (reply,) = pool_at(server.url, config=BASE).asker("judge", "test")([request("a", continuation="b")])
    assert (reply.status, reply.continuation) == (Status.UNSUPPORTED, ())


@pytest.mark.parametrize("field", ["model", "messages", "max_tokens", "temperature", "n", "stream"])
def test_extra_body_sets_nothing_that_the_client_sets_itself(field):
    with pytest.raises(ValueError, match=f"sets {field}"):
        Config(kind="openai_compatible", model="m", extra_body={field: 1})


def test_one_log_probability_is_too_few_to_ask_for():
    with pytest.raises(ValueError, match="top_logprobs"):
        Config(kind="openai_compatible", model="m", top_logprobs=1)


def test_half_characters_in_a_reply_are_replaced_and_the_reply_is_kept(pool_at):
    answer = completion("sea \ud83d", logprobs={"\ud83d": -0.5, "no": -1.0})
    reply, _ = answer_of(pool_at, answer, alternatives=("yes", "no"))
    assert (reply.status, reply.text, dict(reply.alternatives)) == (Status.OK, "sea ?", {"?": -0.5, "no": -1.0})
    refused, _ = answer_of(pool_at, completion(None, refusal="no \ud83d"))
    assert (refused.status, refused.detail) == (Status.REFUSED, "no ?")


def odd(**changes) -> Answer:
    """A completion with log-probabilities whose choice differs in these fields."""
    body = completion("yes", logprobs={"yes": -0.1}).body
    return Answer(body={**body, "choices": [{**body["choices"][0], **changes}]})


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (odd(logprobs={"content": [{"token": "yes", "logprob": None, "top_logprobs": None}]}), Status.OK),
        (odd(logprobs={"content": [{"token": "yes", "logprob": "low", "top_logprobs": []}]}), Status.OK),
        (odd(logprobs={"content": [{"token": 7, "logprob": -0.1, "top_logprobs": [3, None]}]}), Status.OK),
        (odd(logprobs={"content": 7}), Status.CLIENT_ERROR),
        (odd(logprobs="none"), Status.CLIENT_ERROR),
        (odd(message="yes"), Status.CLIENT_ERROR),
        (odd(message={"role": "assistant", "content": ["yes"]}), Status.CLIENT_ERROR),
        (Answer(body={"choices": 7, "model": "\ud83d"}), Status.CLIENT_ERROR),
        (Answer(body={"choices": {"a": 1}}), Status.CLIENT_ERROR),
        (Answer(body={"choices": [{"message": {"content": "yes"}}], "usage": "much"}), Status.OK),
    ],
)
def test_a_reply_of_unexpected_shape_is_a_row_with_a_status(pool_at, answer, status):
    reply, _ = answer_of(pool_at, answer, alternatives=("yes", "no"))
    assert (reply.status, dict(reply.alternatives)) == (status, {})
    assert reply.detail


@pytest.mark.parametrize(
    "url",
    [
        None,
        "http://judge.example.org/v1",
        "ftp://localhost/v1",
        "localhost:8000",
        "https://me:sk-1@example.org/v1",
        "http://[::1/v1",
        "http://localhost:99999/v1",
        "https://me:sk-1/v1",
    ],
)
def test_an_endpoint_that_is_none_or_unsafe_is_refused_before_any_call(tmp_path, url):
    with pytest.raises(ParamsError, match=r"run\.clients\.judge\.base_url") as raised:
        build(Config(kind="openai_compatible", model="m"), name="judge", run=Run(base_url=url), models=tmp_path, device="cpu")
    assert "sk-1" not in str(raised.value)


def test_a_missing_key_is_named_by_its_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    config = Config(kind="openai_compatible", model="m")
    with pytest.raises(ParamsError, match="JUDGE_KEY"):
        build(config, name="judge", run=Run(base_url="https://example.org/v1", key_env="JUDGE_KEY"), models=tmp_path, device="cpu")
    # behind a tunnel this machine's own address may want a key
    with pytest.raises(ParamsError, match="JUDGE_KEY"):
        build(config, name="judge", run=Run(base_url="http://[::1]:8000/v1", key_env="JUDGE_KEY"), models=tmp_path, device="cpu")
    assert build(config, name="judge", run=Run(base_url="http://[::1]:8000/v1"), models=tmp_path, device="cpu")


@pytest.mark.parametrize("url", ["https://example.org/v1", "http://localhost:8000/v1"])
def test_a_key_given_in_place_of_its_variable_is_not_shown(tmp_path, url):
    run = Run(base_url=url, key_env="sk-secret-1")
    with pytest.raises(ParamsError, match="key_env is no name of an environment variable") as raised:
        build(Config(kind="openai_compatible", model="m"), name="judge", run=run, models=tmp_path, device="cpu")
    assert "secret" not in str(raised.value)


def test_a_key_of_another_endpoint_is_never_sent(pool_at, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    with loopback(lambda *_: completion("fine")) as server:
        pool_at(server.url).asker("judge", "test")([request("a")])
        assert server.authorizations == {"Bearer none"}
