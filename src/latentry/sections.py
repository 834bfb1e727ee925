"""The fixed sections of params.yaml: each knob with its type, its limits and its meaning. How they are read is `params.py`'s."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from latentry.registry import VariantConfig

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """Base of every fixed section: frozen, and unknown keys are faults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Price(Section):
    """What an endpoint takes, in US dollars for a million tokens."""

    prompt: Annotated[float, Field(ge=0)]
    reply: Annotated[float, Field(ge=0)]


class Budget(Section):
    """Most that may be spent at endpoints, all clients of the project together, over all its runs so far."""

    calls: Count | None = None
    tokens: Count | None = None
    """Of prompts and replies together."""
    usd: Annotated[float, Field(gt=0)] | None = None
    """By the prices in `run.clients.*.price`."""


class ClientRun(Section):
    """How one client is reached and driven; changes no answer."""

    base_url: str | None = None
    """Where an endpoint listens, such as `https://api.example.org/v1`; http only on loopback."""
    key_env: str | None = None
    """Name of the environment variable that holds the key. The key itself stands nowhere."""
    concurrency: Count = 16
    """Calls in flight at once."""
    retries: Annotated[int, Field(ge=0)] = 5
    timeout_s: Annotated[float, Field(gt=0)] = 120.0
    batch: Count = 16
    """Requests in one forward pass of an in-process client."""
    price: Price | None = None
    """Of an endpoint; without it what it costs is unknown."""


class Run(Section):
    """How, not what: no stage depends on it, no manifest holds it."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    threads: Count | None = None
    """CPU threads of torch; None takes the machine's cores."""
    batch_contexts: Count = 16
    """Contexts in one forward pass of the subject."""
    batch_tokens: Count = 4096
    """Tokens in one encoding by a SAE."""
    shard_contexts: Count = 512
    """Contexts in one shard of stored activations."""
    embedding_batch: Count = 64
    """Texts in one forward pass of the embedding model."""
    clients: dict[Name, ClientRun] = {}
    """By client name; clients that are not listed take the defaults."""
    budget: Budget = Budget()


class TokenSettings(Section):
    """How the corpus becomes rows of tokens."""

    context: Annotated[int, Field(ge=8)]
    """Tokens the subject runs together."""
    n_tokens: Count
    """Budget over all rows; met within one context."""
    tokens_per_document: Count | None = None
    """Take at most so many from the beginning of each document."""
    separator: str | None = None
    """Token between documents; by default the tokenizer's EOS."""
    special_tokens: tuple[str, ...] = ()
    """More tokens to leave out, besides the tokenizer's own special ones."""


class HookpointSettings(Section):
    """One place where activations are read."""

    module: str
    """Name in transformers, such as `model.layers.15`."""
    side: Literal["input", "output"] = "output"


class SubjectSettings(Section):
    """The model interpreted."""

    model: Name
    """Name under `models`."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    hookpoints: Annotated[dict[Name, HookpointSettings], Field(min_length=1)]


class ActivationSettings(Section):
    """What is kept of the subject's activations."""

    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    max_norm_multiple: Annotated[float, Field(gt=1)] = 10.0
    """A position whose norm exceeds this many times the median is an attention sink and is left out."""


class EvaluationSettings(Section):
    """On what every SAE is measured."""

    contexts: Count = 64
    """Contexts kept from training, drawn by the seed: FVU, L0, dead latents."""
    ce_contexts: Count = 16
    """Of these, how many for the cross entropy with the SAE in place."""


class GateSettings(Section):
    """When latents are refused because the SAE does not fit the activations."""

    max_fvu: Annotated[float, Field(gt=0)] = 0.9


class LatentSettings(Section):
    """The latent-major store."""

    dtype: Literal["float16", "float32"] = "float16"
    """Of stored activations of latents; overflow is an error."""
    n_top_tokens: Count = 10


class ExplainSplit(Section):
    """What explainers see."""

    n: Annotated[int, Field(ge=1)] = 40
    how: Literal["deciles", "top", "random"] = "deciles"
    n_contrast: Annotated[int, Field(ge=0)] = 40
    """Silent windows, from the first entry of `contrasts`."""


class HeldOutSplit(Section):
    """What scorers see and explainers never do."""

    n_activating: Annotated[int, Field(ge=1)] = 50
    n_contrast: Annotated[int, Field(ge=1)] = 50
    """Per entry of `contrasts`."""


class ExampleSettings(Section):
    """Which latents, and which windows of them."""

    window: Annotated[int, Field(ge=4)] = 32
    """Tokens in a window."""
    n_latents: Count
    """Eligible latents wanted of each SAE: the head of a seeded permutation."""
    latents: Literal["all"] | Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = "all"
    min_examples: Annotated[int, Field(ge=10)] = 200
    """Distinct activating windows that a latent needs."""
    split_by: Literal["document", "context"] = "document"
    """What explainers' and scorers' windows never share."""
    explain: ExplainSplit = ExplainSplit()
    held_out: HeldOutSplit = HeldOutSplit()
    contrasts: Annotated[dict[Name, VariantConfig], Field(min_length=1)]


class TrackingSettings(Section):
    """Where runs are logged; the server is `MLFLOW_TRACKING_URI`, else a file beside the project."""

    experiment: Annotated[str, Field(min_length=1, max_length=200)]
    required: bool = False
    """Whether a tracker that cannot be reached makes the stage fail."""
