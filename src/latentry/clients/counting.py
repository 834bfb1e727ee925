"""How many tokens a prompt takes at an endpoint, before it is sent: by its model's tokenizer, else by an upper estimate.

Always true: a count by the tokenizer is the model's own, chat template included.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from latentry.clients.transcript import transcript
from latentry.errors import ParamsError
from latentry.records import Message

BYTES_PER_TOKEN = 3.0
"""Where there is no tokenizer: fewer than any large model's tokens have on average, in any script (English: about 4.5)."""
TOKENS_PER_TURN, TOKENS_PER_PROMPT = 6, 32
"""What chat templates add around a turn, and around a whole prompt, at most."""


class TokenCounter:
    """Counts prompts of one client."""

    def __init__(self, folder: Path | None, name: str, *, is_chat: bool) -> None:
        self._folder, self._name, self._is_chat = folder, name, is_chat

    def n_tokens(self, messages: Sequence[Message], further: str = "") -> int:
        """Tokens of a prompt and a text after it; without a tokenizer more than they take.

        Raises:
            ParamsError: the folder holds no tokenizer, or one without the chat template that is needed.
        """
        if self._folder is None:
            return likely_tokens(messages) + int(len(further.encode("utf-8", "replace")) / BYTES_PER_TOKEN)
        if not self._is_chat:
            return len(self._tokenizer.encode(transcript(messages) + further))
        turns = [{"role": message.role, "content": message.content} for message in messages]
        prompt = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)
        return len(prompt) + len(self._tokenizer.encode(further, add_special_tokens=False))

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        where = f"clients.{self._name}.tokenizer"
        try:
            tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError) as error:
            said = str(error).splitlines()[0]
            raise ParamsError(
                where, [f"{self._folder}: holds no tokenizer ({said}); tokenizer.json and tokenizer_config.json are needed"]
            ) from error
        if self._is_chat and not tokenizer.chat_template:
            raise ParamsError(where, [f"{self._folder}: has no chat template, which counts too; take the files of the instruct model"])
        return tokenizer


def likely_tokens(messages: Sequence[Message]) -> int:
    """More tokens than a prompt takes in any script that its model knows well, by its bytes."""
    return int(n_bytes(messages) / BYTES_PER_TOKEN) + TOKENS_PER_TURN * len(messages) + TOKENS_PER_PROMPT


def most_tokens(messages: Sequence[Message], further: str = "") -> int:
    """As many tokens as a prompt and a text after it can take at all: one a byte."""
    return n_bytes(messages) + len(further.encode("utf-8", "replace")) + TOKENS_PER_TURN * len(messages) + TOKENS_PER_PROMPT


def n_bytes(messages: Sequence[Message]) -> int:
    """Bytes of what a prompt says, in UTF-8."""
    return sum(len(message.content.encode("utf-8", "replace")) for message in messages)
