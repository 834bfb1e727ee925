"""The fixed sections of params.yaml: each knob with its type, its limits and its meaning. How they are read is `params.py`'s."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from latentry.registry import ContrastConfig

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)]
Count = Annotated[int, Field(ge=1, le=1 << 40)]
Share = Annotated[float, Field(ge=0, le=1)]
Latent = Annotated[int, Field(ge=0, strict=True)]
"""A whole number; `true` is none."""


class Section(BaseModel):
    """Base of every fixed section: frozen, and unknown keys are faults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Price(Section):
    """What an endpoint takes, in US dollars for a million tokens."""

    prompt: Annotated[float, Field(ge=0)]
    """Of prompts."""
    reply: Annotated[float, Field(ge=0)]
    """Of replies."""


class Budget(Section):
    """Most that may be spent at endpoints, all clients of the project together, over all its runs so far."""

    calls: Count | None = None
    """Sent, further tries and those that brought nothing included."""
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
    """Further tries of a call that failed for the moment, with growing pauses."""
    timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Seconds without an answer after which a call has failed for the moment."""
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
    block_latents: Count = 16384
    """Latents in one product with a SAE's encoder: batch_tokens x block_latents numbers are held at once."""
    shard_contexts: Count = 512
    """Contexts in one shard of tokens, activations or latents: what a kill or a lost worker costs at most."""
    engine: Literal["local", "ray"] = "local"
    """Where the shards of `activations` and `latents` are made: this process, or Ray's workers."""
    workers: Count | None = None
    """ray: workers at once; None takes one for each GPU of the cluster, or one."""
    ray_address: str | None = None
    """ray: a cluster's address such as `auto` or `ray://head:10001`; None starts Ray on this machine."""
    embedding_batch: Count = 64
    """Texts in one forward pass of the embedding model."""
    processes: Count = 1
    """Processes that choose examples, each for its own latents; they share the corpus and the store."""
    clients: dict[Name, ClientRun] = {}
    """By client name; clients that are not listed take the defaults."""
    budget: Budget = Budget()


class TokenSettings(Section):
    """How the corpus becomes rows of tokens."""

    context: Annotated[int, Field(ge=8, le=1 << 20)]
    """Tokens the subject runs together."""
    n_tokens: Count
    """Budget over all rows; met within one context."""
    tokens_per_document: Count | None = None
    """Take at most so many from the beginning of each document."""
    separator: str | None = None
    """Token between documents; by default the tokenizer's EOS."""
    special_tokens: tuple[str, ...] = ()
    """More tokens to leave out, besides the tokenizer's own special ones."""
    prepend_bos: bool | None = None
    """Whether every row begins with BOS, as the SAE was trained; None does what the tokenizer does by itself."""


class RandomSubject(Section):
    """The subject with every matrix redrawn to its own mean and standard deviation: what an SAE finds where nothing was learned."""

    seed: Annotated[int, Field(ge=0)] = 0
    """Of the redrawn weights alone; the study's own seed does not enter."""
    all: bool = False
    """Redraw the embeddings and the unembedding too."""


class HookpointSettings(Section):
    """One place where activations are read."""

    module: str
    """Name in transformers, such as `model.layers.15`."""
    side: Literal["input", "output"] = "output"
    """What the module is given, or what it gives."""
    random: Annotated[RandomSubject | None, Field(exclude_if=lambda value: value is None)] = None
    """Read it in the subject with its weights redrawn: the baseline `random_subject`. `{}` takes seed 0; none: the subject as it is."""


class SubjectSettings(Section):
    """The model interpreted."""

    model: Name
    """Name under `models`."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """In which the model runs."""
    hookpoints: Annotated[dict[Name, HookpointSettings], Field(min_length=1)]


class ActivationSettings(Section):
    """What is kept of the subject's activations."""

    store: bool = True
    """Keep them on disk; false keeps only which positions count, and each later cell runs the subject itself."""
    non_finite: Literal["stop", "drop"] = "stop"
    """What a context with NaN or infinite activations does: stop the stage, or be left out and counted."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of stored activations; overflow is an error."""
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
    """Largest FVU allowed; 1 is what predicting the mean gives."""


class LatentSettings(Section):
    """The latent-major store."""

    dtype: Literal["float16", "float32"] = "float16"
    """Of stored activations of latents; overflow is an error."""
    n_top_tokens: Count = 10
    """Tokens named in a latent's row: those it fires on most, promotes most, suppresses most."""


class ExplainSplit(Section):
    """What explainers see."""

    n: Annotated[int, Field(ge=1)] = 40
    """Activating windows of each latent."""
    how: Literal["deciles", "top", "random", "importance", "mix"] = "deciles"
    """Of the windows that the held-out split left: equally many of each decile; the strongest; any; with probability
    proportional to the squared peak; or a fifth of the strongest and equally many of each decile of the others."""
    n_contrast: Annotated[int, Field(ge=0)] = 40
    """Silent windows, from the first entry of `contrasts`."""


class HeldOutSplit(Section):
    """What scorers see and explainers never do."""

    n_activating: Annotated[int, Field(ge=1)] = 50
    """Activating windows of each latent, even over the deciles."""
    n_contrast: Annotated[int, Field(ge=1)] = 50
    """Per entry of `contrasts`."""


class SteeringSettings(Section):
    """The prompts on which latents are steered: beginnings of contexts, up to the first token at which the latent fires."""

    contexts: Annotated[int, Field(ge=20, multiple_of=20)] = 40
    """Of each latent, equally many of each quintile of peak: three quarters to score, a quarter to explain."""
    tokens: Annotated[int, Field(ge=4)] = 64
    """Tokens in a context, before it is cut."""


class LatentRange(Section):
    """The latents from one to another."""

    first: Latent
    """The first one, itself among them."""
    last: Latent
    """The last one, itself among them."""

    @model_validator(mode="after")
    def _in_order(self) -> "LatentRange":
        if self.last < self.first:
            raise ValueError(f"last is {self.last}; at least first, {self.first}")
        return self


class ExampleSettings(Section):
    """Which latents, and which windows of them."""

    window: Annotated[int, Field(ge=4)] = 32
    """Tokens in a window."""
    windows: Literal["fixed", "centred"] = "fixed"
    """`fixed`: those of a grid over each document; `centred`: around the strongest token of each of these."""
    n_latents: Count | None = None
    """Eligible latents wanted of each SAE: the head of a seeded permutation of `latents`; none: all."""
    latents: Literal["all"] | Annotated[tuple[Latent, ...], Field(min_length=1)] | LatentRange = "all"
    """`all`, a list such as [3, 17], or a range such as {first: 0, last: 4095}."""
    strata: Annotated[int, Field(ge=2)] | None = None
    """Strata of firing frequency, in equal steps of its logarithm, that the permutation takes in turns; none: no strata. The
    probability with which each latent was taken stands in its row."""
    min_examples: Annotated[int, Field(ge=10)] = 200
    """Distinct activating windows that a latent needs."""
    split_by: Literal["document", "context"] = "document"
    """What explainers' and scorers' windows never share."""
    explain: ExplainSplit = ExplainSplit()
    held_out: HeldOutSplit = HeldOutSplit()
    contrasts: Annotated[dict[Name, ContrastConfig], Field(min_length=1)]
    """What activating windows are told from, by name; explainers are shown the first."""
    steering: SteeringSettings | None = None
    """Prompts for scorers and explainers that steer; none: none are drawn."""


class ImportedSettings(Section):
    """Scores that others made, as `latentry import` left them."""

    path: str
    """The file: `imports/NAME/scores.parquet`."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Digest of the file, so that a changed file is a changed study; the error that it is missing tells it."""
    sae: Name
    """Under `saes`: whose latents they are of."""
    explainer: Name
    """Under `explainers`: whose scores stand beside them, the imported explanations' own as a rule."""


class JacobianSettings(Section):
    """Two SAEs around one MLP, and what is asked of the effects of the one's latents on the other's."""

    input: Name
    """The SAE, under `saes`, of what the MLP reads."""
    output: Name
    """The SAE of what the MLP writes."""
    tokens: Count | None = None
    """Kept positions read, of contexts kept from training (`evaluation.contexts`), met within one context; none: all of them."""
    scorer: Name
    """The entry of `scorers`, of kind embedding, by whose model, contrast and sizes the explained edges are scored."""
    inputs: Count = 10
    """Of each latent of the output, how many explained latents of the input stand beside it and score it: the strongest."""


class ComparisonSettings(Section):
    """How SAEs are set beside each other."""

    force: bool = False
    """Compare also SAEs whose scores were made under unlike settings; the result says that it was forced."""
    imported: dict[Name, ImportedSettings] = Field(default_factory=dict)
    """Scores of others, set beside ours of the same latents; none: there are none."""


class TrackingSettings(Section):
    """Where runs are logged; the server is `MLFLOW_TRACKING_URI`, else a file beside the project."""

    experiment: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the experiment in MLflow, one per study."""
    required: bool = False
    """Whether a tracker that cannot be reached makes the stage fail."""
