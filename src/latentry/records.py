"""The records that cross rooms: frozen, complete when made, checked on construction.

They hold no behaviour beyond what their fields imply.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NO_EXPLAINER = "none"
"""Stands as the explainer of what is scored without an explanation."""


class Status(StrEnum):
    """How a row ended. Everything but OK is counted and is in no mean."""

    OK = "ok"
    DEAD = "dead"
    UNDERSAMPLED = "undersampled"
    PARSE_ERROR = "parse_error"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    CLIENT_ERROR = "client_error"
    SINGLE_CLASS = "single_class"
    CONSTANT = "constant"
    KL_UNREACHED = "kl_unreached"
    NO_INPUTS = "no_inputs"
    UNSUPPORTED = "unsupported"


class Split(StrEnum):
    """Who may see an example: the explainer, or the scorers. Never both."""

    EXPLAIN = "explain"
    HELD_OUT = "held_out"


class Kind(StrEnum):
    """Whether the latent fires in the example."""

    ACTIVATING = "activating"
    CONTRAST = "contrast"


class Purpose(StrEnum):
    """What a steering prompt is for: to score an explanation, or to make one. Never both."""

    SCORE = "score"
    EXPLAIN = "explain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a corpus."""

    name: str
    """Unique in its corpus, and stable: a chapter, an address, a row."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A window of the corpus with one latent's activations in it."""

    latent: int
    example_id: str
    """Unique among the examples of one SAE."""
    split: Split
    kind: Kind
    source: str
    """`windows` for activating examples, else the name of the contrast source."""
    contrast: str
    """The entry of `examples.contrasts` it belongs to; empty for activating examples."""
    rank: int
    """Order within its latent, split, kind and contrast, from 0: a reader that wants n takes the first n
    (activating ones are ordered so that each prefix is even over the deciles)."""
    decile: int
    """1 weakest tenth to 10 strongest among the latent's activating windows; 0 for a contrast."""
    document: int
    context: int
    start: int
    """Position of the first token in its context."""
    tokens: tuple[int, ...]
    activations: tuple[float, ...]
    """One per token; all zero in a contrast (checked)."""
    text: str
    """The source's own characters, from the first token's to the last one's."""
    spans: tuple[int, ...]
    """Start and end of each token in `text`, in characters, flat: start0, end0, start1, ..."""
    marks: tuple[int, ...]
    """Start and end of each marked stretch of `text`, in characters, flat, ascending, disjoint."""
    supplier: int | None = None
    """The latent among whose windows a contrast was found; None where it was not found among a latent's."""

    def __post_init__(self) -> None:
        if self.kind is Kind.CONTRAST and any(self.activations):
            raise ValueError(f"example {self.example_id}: a contrast must be silent, but the latent {self.latent} fires in it")
        if not len(self.tokens) == len(self.activations) == len(self.spans) // 2:
            raise ValueError(
                f"example {self.example_id}: {len(self.tokens)} tokens, {len(self.activations)} activations and"
                f" {len(self.spans) // 2} spans must be equally many"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringPrompt:
    """The beginning of a context, up to the first token at which one latent fires: the subject goes on from there, steered or not."""

    latent: int
    example_id: str
    """Unique among the prompts of one SAE."""
    purpose: Purpose
    quintile: int
    """1 weakest fifth to 5 strongest among the latent's contexts, by peak."""
    document: int
    context: int
    start: int
    """Position in its context of the first token taken from the text."""
    tokens: tuple[int, ...]
    """As the subject is run on them: where rows begin with BOS, so does a prompt. The latent fires at the last one."""
    text: str
    """The source's own characters, without BOS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What one explainer says of one latent."""

    latent: int
    explainer: str
    text: str | None
    """None exactly when `status` is not OK."""
    status: Status
    detail: str
    """Why there is no text; empty when there is one."""
    prompt_digest: str
    """Of the whole prompt that was sent, or of the inputs of an explainer that sends none."""
    reply: str | None
    """The raw reply as it came, kept also when it was unreadable."""
    reply_key: str | None
    """Where the reply stands in the reply store; None for an explainer that asks nobody."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.status is Status.OK):
            raise ValueError(f"explanation of {self.latent} by {self.explainer}: status {self.status} with text {self.text!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One scorer's decision on one held-out example."""

    latent: int
    explainer: str
    example_id: str
    null: bool
    """True when the example was judged under another latent's explanation: the chance level."""
    is_activating: bool
    """The truth."""
    says_activating: bool | None
    """The scorer's answer; None when `status` is not OK, and for scorers that only grade."""
    confidence: float | None
    """Grows with the belief that the example is activating; None when the answer is not graded."""
    status: Status
    detail: str
    reply_key: str | None
    value: float | None = None
    """What was measured on one prompt, trial or text, by scorers that tell nothing activating from contrast: nats, or 0 and 1."""
    levels: tuple[float, ...] = ()
    """Simulated activation of each token of the example, by scorers that simulate."""
    text: str | None = None
    """What was written for this judgment, where something was: a continuation, a text from the explanation."""

    def __post_init__(self) -> None:
        answered = self.says_activating is not None or self.confidence is not None or self.value is not None or bool(self.levels)
        if answered != (self.status is Status.OK):
            raise ValueError(f"judgment on {self.example_id}: status {self.status} with answer {self.says_activating}, {self.confidence}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    """system, user or assistant."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a model. Two equal requests to one client have one reply."""

    messages: tuple[Message, ...]
    max_tokens: int
    """Largest number of tokens in the reply."""
    temperature: float = 0.0
    sample: int = 0
    """Tells apart several replies wanted to the same question."""
    alternatives: tuple[str, ...] = ()
    """When not empty: the log-probabilities of the first reply token are wanted, for these beginnings at least."""
    schema: str = ""
    """JSON schema, as JSON, that the reply should fit; a client that cannot hold its model to one leaves it out."""
    continuation: str = ""
    """When not empty: no reply is wanted, but the log-probabilities of this text's tokens after the messages."""
    slots: tuple[str, ...] = ()
    """When not empty: texts that follow the messages one upon another. No reply is wanted, but the log-probabilities of the
    `alternatives` after each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back, or why nothing did."""

    status: Status
    """OK, TRUNCATED (cut at max_tokens), REFUSED; or, never stored, CLIENT_ERROR (may go well another time) or UNSUPPORTED
    (the client cannot do what was asked, or the prompt does not fit into its context)."""
    text: str
    detail: str
    alternatives: Mapping[str, float] = field(default_factory=dict)
    """Log-probability, in nats, of possible first tokens by their exact text. From an endpoint: the most likely ones it
    returns. In process: the first token of each alternative asked for, under that alternative's own text. Distinct
    texts that begin with the same token appear once."""
    continuation: tuple[float, ...] = ()
    """Log-probability, in nats, of each token of the continuation asked for."""
    slots: tuple[Mapping[str, float], ...] = ()
    """For each slot asked for: log-probability, in nats, of the alternatives by their text."""
    prompt_tokens: int = 0
    reply_tokens: int = 0
    model: str = ""
    """The name that the server says it served, or the weights' digest."""
    key: str = ""
    """Its key in the reply store."""
