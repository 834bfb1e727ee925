"""A language model in this process, by transformers: replies, and log-probabilities of given first tokens.

What requests share at their beginning is run once and its keys and values are used by all. Always true: a request has
the reply that it has alone, up to rounding; the same batches give the same numbers, whatever was answered before.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from latentry.clients.base import ClientRun, unsupported
from latentry.clients.batch_run import NOTHING, BatchRun, Prefix, Tokens, common_beginning, float32_logits
from latentry.clients.given_text import GivenText, first_tokens, given_text, reply_of
from latentry.clients.transcript import END, transcript
from latentry.errors import LatentryError, NumericsError, ParamsError
from latentry.records import Message, Reply, Request, Status
from latentry.registry import VariantConfig
from latentry.store import content_digest, digest_of

if TYPE_CHECKING:
    from torch import Tensor


_OWN_PASS_TOKENS = 8
"""A batch's own beginning is run apart from this length on; below, reading all weights once more costs more than it saves."""

_END_TOKENS = 4
"""Of the text written last, in which the end of an answer is looked for."""


class Config(VariantConfig):
    model: str
    """Name of the model under `models`."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Number format of weights and activations; bfloat16 takes half the memory, and on many processors half the time."""
    chat: bool = True
    """Ask by the model's chat template; false continues the turns as plain text, which is what base models can do."""


def build(config: Config, *, name: str, run: ClientRun, models: Path, device: str) -> "TransformersClient":
    """The client; the weights are loaded when the first request needs them.

    Raises:
        ContractError: the model's folder is not there or is incomplete.
    """
    return TransformersClient(
        models / config.model,
        kind=config.kind,
        name=name,
        dtype=config.dtype,
        chat=config.chat,
        device=device,
        lower=f"run.clients.{name}.batch ({run.batch})",
    )


class TransformersClient:
    """One local model."""

    def __init__(self, folder: Path, *, kind: str, name: str, dtype: str, chat: bool, device: str, lower: str) -> None:
        self._folder, self._name, self._dtype, self._device, self._lower = folder, name, dtype, device, lower
        self._weights = content_digest(folder)
        self._chat = chat
        self.identity: Mapping[str, Any] = {"kind": kind, "weights": self._weights, "dtype": dtype} | ({} if chat else {"chat": False})
        self.counts_exactly = True
        self._shared = NOTHING
        """What all requests of the call begin with."""

    def n_tokens(self, messages: Sequence[Message], further: str = "") -> int:
        """Tokens of a prompt and a text after it, by the model's own tokenizer and chat template."""
        return len(self._prompt(messages)) + len(self._tokens(further))

    def is_one_token(self, text: str) -> bool:
        """Whether the text is one token of the model."""
        return len(self._tokens(text)) == 1

    def batches(self, requests: Sequence[Request], size: int) -> list[list[int]]:
        """Batches that need the least work: of like length, or of like beginning. Learns what all requests share."""
        prompts = [self._prompt(request.messages) for request in requests]
        shared = common_beginning(prompts)
        if shared != self._shared.tokens:
            self._shared = Prefix(shared, ())
        rows = [prompt + given_text(request, self._tokens).tokens for prompt, request in zip(prompts, requests, strict=True)]
        orders = (
            sorted(range(len(rows)), key=lambda i: -len(rows[i])),
            sorted(range(len(rows)), key=lambda i: rows[i]),
        )
        plans = [[order[start : start + size] for start in range(0, len(order), size)] for order in orders]
        return min(plans, key=lambda plan: sum(_work([rows[i] for i in batch]) for batch in plan))

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order; one forward pass for log-probabilities, a decoding loop for texts.

        Raises:
            NumericsError: the model gives NaN.
            LatentryError: the batch does not fit into the device's memory.
        """
        import torch

        prompts = [self._prompt(request.messages) for request in requests]
        texts = [given_text(request, self._tokens) for request in requests]
        fitting = [i for i, prompt in enumerate(prompts) if len(prompt) + max(len(texts[i].tokens) - 1, 0) < self.longest]
        grading = [i for i in fitting if texts[i].after]
        fitting = [i for i in fitting if not texts[i].after]
        try:
            with torch.inference_mode():
                answered = self._answer([requests[i] for i in fitting], [prompts[i] for i in fitting]) if fitting else []
                answered += self._continued([(requests[i], prompts[i], texts[i]) for i in grading]) if grading else []
        except torch.OutOfMemoryError as error:
            raise LatentryError(
                f"clients.{self._name}: a batch does not fit into the memory of {self._device}; lower {self._lower}"
            ) from error
        replies = dict(zip([*fitting, *grading], answered, strict=True))
        return [replies.get(i) or self._too_long(prompt) for i, prompt in enumerate(prompts)]

    def _too_long(self, prompt: Tokens) -> Reply:
        said = f"prompt of {len(prompt)} tokens exceeds the model's {self.longest}, of which the reply needs one"
        return dataclasses.replace(unsupported(said), model=self._weights)

    def _answer(self, requests: Sequence[Request], prompts: Sequence[Tokens]) -> list[Reply]:
        run = BatchRun(self._model, self._beginning(prompts), prompts)
        # Widening the read-out's weights costs as much as half a decoding step, so texts go without.
        with float32_logits(self._model) if any(request.alternatives for request in requests) else nullcontext():
            logits = _finite(run.read(), self._folder)
        replies: list[Reply | None] = [None] * len(requests)
        for row, request in enumerate(requests):
            if request.alternatives:
                replies[row] = self._graded(request, prompts[row], logits[row])
        writing = [row for row, reply in enumerate(replies) if reply is None]
        if writing:
            run.keep(writing)
            texts = self._written([requests[i] for i in writing], [prompts[i] for i in writing], run, logits[writing])
            for row, reply in zip(writing, texts, strict=True):
                replies[row] = reply
        return [reply for reply in replies if reply is not None]

    def _continued(self, asked: Sequence[tuple[Request, Tokens, GivenText]]) -> list[Reply]:
        """What is wanted of given texts after each prompt: log-probabilities of their tokens, the first included, or in their slots."""
        rows = [prompt + text.tokens for _, prompt, text in asked]
        # The last token of each prompt must be run with its row, for the first token after it is graded there.
        prefix = self._beginning(rows, longest=min(len(prompt) for _, prompt, _ in asked) - 1)
        places = [[len(prompt) + after - 1 for after in text.after] for _, prompt, text in asked]
        logits = _finite(BatchRun(self._model, prefix, rows).read_at(places), self._folder)
        totals, done, replies = logits.logsumexp(-1, keepdim=True), 0, []
        for request, prompt, text in asked:
            own = slice(done, done := done + len(text.after))
            values = logits[own].gather(1, logits.new_tensor(text.wanted).long()) - totals[own]
            replies.append(reply_of(request, self._tokens, values.tolist(), len(prompt) + len(text.tokens), self._weights))
        return replies

    def _tokens(self, text: str) -> Tokens:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False)) if text else ()

    def _graded(self, request: Request, prompt: Tokens, logits: "Tensor") -> Reply:
        logprobs = logits.log_softmax(-1)
        first = first_tokens(request.alternatives, self._tokens)
        return Reply(
            status=Status.OK,
            text=self._tokenizer.decode([int(logprobs.argmax(-1))], skip_special_tokens=True),
            detail="",
            alternatives={text: float(logprobs[token]) for token, text in first.items()},
            prompt_tokens=len(prompt),
            reply_tokens=1,
            model=self._weights,
        )

    def _written(self, requests: Sequence[Request], prompts: Sequence[Tokens], run: BatchRun, logits: "Tensor") -> list[Reply]:
        """Writes until each row has its end or its limit; rows that are done leave the batch."""
        choosers = [_chooser(request) for request in requests]
        limits = [min(request.max_tokens, self.longest - len(prompt)) for request, prompt in zip(requests, prompts, strict=True)]
        written: list[list[int]] = [[] for _ in requests]
        ended = [False] * len(requests)
        rows = list(range(len(requests)))
        while rows:
            tokens = [choosers[row](row_logits) for row, row_logits in zip(rows, logits, strict=True)]
            for row, token in zip(rows, tokens, strict=True):
                written[row].append(token)
                ended[row] = token in self._ends or (not self._chat and self._has_answered(written[row]))
            going = [i for i, row in enumerate(rows) if not ended[row] and len(written[row]) < limits[row]]
            if len(going) < len(rows):
                run.keep(going)
            rows, tokens = [rows[i] for i in going], [tokens[i] for i in going]
            if rows:
                logits = _finite(run.step(tokens), self._folder)
        return [self._text(*row) for row in zip(prompts, written, ended, strict=True)]

    def _has_answered(self, written: Sequence[int]) -> bool:
        """Whether a model that only continues text has begun the next paragraph, which is made up."""
        return END in self._tokenizer.decode(list(written[-_END_TOKENS:]), skip_special_tokens=True)

    def _text(self, prompt: Tokens, written: Sequence[int], ended: bool) -> Reply:
        text = self._tokenizer.decode(list(written), skip_special_tokens=True)
        return Reply(
            status=Status.OK if ended else Status.TRUNCATED,
            text=text if self._chat else text.partition(END)[0],
            detail="" if ended else f"cut after {len(written)} tokens",
            prompt_tokens=len(prompt),
            reply_tokens=len(written),
            model=self._weights,
        )

    def _beginning(self, prompts: Sequence[Tokens], longest: int | None = None) -> Prefix:
        """What is run once for one batch: what the whole call shares, and what its rows have in common beyond, up to `longest` tokens."""
        if self._shared.tokens and not self._shared.layers:
            self._shared = self._extended(NOTHING, self._shared.tokens)
        common = common_beginning(prompts)[:longest]
        known = self._shared if common[: len(self._shared.tokens)] == self._shared.tokens else NOTHING
        pays = len(prompts) > 1 and len(common) - len(known.tokens) >= _OWN_PASS_TOKENS
        return self._extended(known, common) if pays else known

    def _extended(self, known: Prefix, tokens: Tokens) -> Prefix:
        run = BatchRun(self._model, known, [tokens])
        run.read()
        return Prefix(tokens, run.layers())

    def _prompt(self, messages: Sequence[Message]) -> Tokens:
        if not self._chat:
            return tuple(self._tokenizer.encode(transcript(messages)))
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return tuple(self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False))

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True, trust_remote_code=False)
        if self._chat and not tokenizer.chat_template:
            raise ParamsError(
                f"clients.{self._name}.model",
                [f"{self._folder.name}: has no chat template; take an instruct model, or set clients.{self._name}.chat: false"],
            )
        return tokenizer

    @cached_property
    def _model(self) -> Any:
        import torch
        from transformers import AutoModelForCausalLM

        dtype = getattr(torch, self._dtype)
        model: Any = AutoModelForCausalLM.from_pretrained(
            self._folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
        return model.to(self._device).eval()

    @cached_property
    def longest(self) -> int:
        """Tokens of prompt and reply together that the model was made for."""
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(self._folder, local_files_only=True, trust_remote_code=False).get_text_config()
        return getattr(config, "max_position_embeddings", None) or 1 << 30

    @cached_property
    def _ends(self) -> frozenset[int]:
        found = (self._model.generation_config.eos_token_id, self._model.config.eos_token_id, self._tokenizer.eos_token_id)
        return frozenset(token for ids in found if ids is not None for token in (ids if isinstance(ids, list) else [ids]))


def _work(prompts: Sequence[Tokens]) -> int:
    """Tokens that a batch runs: its own beginning once, then every row as wide as the widest."""
    start = len(common_beginning(prompts)) if len(prompts) > 1 else 0
    return start + len(prompts) * (max(map(len, prompts)) - start)


def _finite(logits: "Tensor", folder: Path) -> "Tensor":
    if logits.isnan().any():
        raise NumericsError(f"{folder}: the model gives NaN; try dtype float32")
    return logits


def _chooser(request: Request) -> Any:
    """Picks a row's next token: the likeliest, or a draw that depends on the request alone."""
    import torch

    if request.temperature == 0:
        return lambda logits: int(logits.argmax(-1))
    seed = int(digest_of(dataclasses.asdict(request))[:15], 16)
    chance = torch.Generator().manual_seed(seed)
    return lambda logits: int(torch.multinomial((logits / request.temperature).softmax(-1).cpu(), 1, generator=chance))
