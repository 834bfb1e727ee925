"""A study of random weights and random tokens, and its stages `activations` and `latents` called as the stages call the library.

The subject is Llama-shaped with two layers more than are read; a SAE has random directions and TopK. What is timed
or measured is each benchmark's.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModel, LlamaConfig, LlamaForCausalLM

from latentry.activations.activation_store import Recorded
from latentry.activations.cache import Caching, finish
from latentry.contracts import ACTIVATIONS, LATENTS, MODEL, SAE, TOKENS
from latentry.corpora.token_set import TokenSet
from latentry.engines.run import run_job
from latentry.latents.encode import EncodeJob, kept_by_segment
from latentry.latents.latent_store import LatentStore, merge_segments
from latentry.latents.promoted import drop_parts, promoted_tokens
from latentry.latents.quality import QUALITY_FILE, quality
from latentry.latents.statistics import statistics, write_statistics
from latentry.registry import variant
from latentry.runtime import device_of, use_threads
from latentry.saes.evaluation import reconstruction
from latentry.store import Work, work
from latentry.subjects.causal_lm import load_subject
from latentry.subjects.hooks import Hookpoint

ROOT = Path(__file__).parents[1]
POINT = "resid"
N_TOP = 10
"""`latents.n_top_tokens`."""
EVALUATION_CONTEXTS = 64
"""`evaluation.contexts`: what the gate encodes."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Its sizes, and the folder it lies in; `run` settings are those that params.yaml has by default, but for smaller shards."""

    folder: Path
    d_in: int
    n_layers: int
    """Layers up to the hookpoint."""
    n_contexts: int
    context: int
    vocabulary: int
    subject_dtype: str = "bfloat16"
    dtype: str = "bfloat16"
    k: int = 32
    device: str = "cpu"
    threads: int = os.cpu_count() or 1
    batch_contexts: int = 16
    batch_tokens: int = 4096
    block_latents: int = 16384
    shard_contexts: int = 64

    @property
    def n_tokens(self) -> int:
        """All of them: none is special."""
        return self.n_contexts * self.context

    @property
    def hookpoint(self) -> Hookpoint:
        """The residual stream after `n_layers` layers."""
        return Hookpoint(name=POINT, module=f"model.layers.{self.n_layers - 1}", side="output")

    def out(self, name: str) -> Path:
        """Where a stage's folder lies."""
        return self.folder / "data" / name


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is deleted afterwards; work folders are made in it too."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache", prefix="bench-") as name:
        os.environ["DVC_ROOT"] = name
        yield Path(name)


def lay_out(study: Study) -> None:
    """Write the subject and the tokens."""
    use_threads(study.threads)
    with work(study.out("model"), MODEL, cell="model", params={}) as making:
        _write_subject(study, _made(making))
    with work(study.out("tokens"), TOKENS, cell="tokens", params={}) as making:
        _write_tokens(study, _made(making))


def lay_out_sae(study: Study, width: int) -> None:
    """Write a SAE of that width: random unit directions, which encode and decode alike."""
    with work(study.out(f"sae-{width}"), SAE, cell=f"sae-{width}", params={}) as opened:
        making = _made(opened)
        rows = torch.randn(width, study.d_in, generator=torch.Generator().manual_seed(width))
        rows /= rows.norm(dim=1, keepdim=True)
        weights = {"W_enc": rows.T.contiguous(), "W_dec": rows, "b_enc": torch.zeros(width), "b_dec": torch.zeros(study.d_in)}
        making.write_file("sae_weights.safetensors", lambda path: save_file(weights, path))
        described = {"architecture": "topk", "d_in": study.d_in, "d_sae": width, "k": study.k, "apply_b_dec_to_input": True}
        making.write_json("cfg.json", described | {"dtype": "float32", "metadata": {}})


def activations(study: Study) -> float:
    """Make `data/activations` anew; returns seconds."""
    out = study.out("activations")
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    with work(out, ACTIVATIONS, cell="activations", params={}, inputs=[study.out("model"), study.out("tokens")]) as making:
        job = caching(study, _made(making))
        run_job(job, engine="local", workers=None, address=None)
        finish(job, [], TokenSet(study.out("tokens")).special, max_norm_multiple=10.0)
    return time.perf_counter() - start


def caching(study: Study, making: Work) -> Caching:
    """The job of `activations`."""
    return Caching(
        making={POINT: making},
        hookpoints=(study.hookpoint,),
        model=study.out("model"),
        tokens=study.out("tokens"),
        n_contexts=study.n_contexts,
        context=study.context,
        subject_dtype=study.subject_dtype,
        dtype=study.dtype,
        store=True,
        non_finite="stop",
        shard_contexts=study.shard_contexts,
        batch_contexts=study.batch_contexts,
        device=study.device,
        threads=study.threads,
    )


def latents(study: Study, width: int) -> dict[str, float]:
    """Make `data/latents` anew; returns seconds of its parts. `gate` and `promoted` cost the same whatever the tokens."""
    out, seconds = study.out(f"latents-{width}"), {}
    shutil.rmtree(out, ignore_errors=True)
    inputs = [study.out(name) for name in ("model", "tokens", "activations", f"sae-{width}")]
    start = time.perf_counter()
    with work(out, LATENTS, cell=f"latents-{width}", params={}, inputs=inputs) as making:
        job = encoding(study, width, _made(making))
        with _timed(seconds, "gate"):
            n_contexts = min(EVALUATION_CONTEXTS, study.n_contexts)
            sae, read = job.load_sae(), job.load_activations()
            reconstruction(sae, read, np.arange(n_contexts), block=study.block_latents, batch_tokens=study.batch_tokens)
            del sae, read
        with _timed(seconds, "encode"):
            run_job(job, engine="local", workers=None, address=None)
        with _timed(seconds, "merge"):
            merge_segments(job.making, job.segments)
        with _timed(seconds, "promoted"):
            subject = load_subject(job.model, [study.hookpoint], dtype=study.subject_dtype, device=device_of(study.device))
            promoted = promoted_tokens(job.making, subject, job.load_sae(), N_TOP)
        with _timed(seconds, "statistics"):
            names = [f" token-{number}" for number in range(study.vocabulary)]
            rows = statistics(LatentStore(job.making.folder), TokenSet(job.tokens).tokens, sum(job.sizes), names, promoted, N_TOP)
            write_statistics(job.making, rows)
            drop_parts(job.making)
            job.making.write_json(QUALITY_FILE, quality(job.making.path("statistics.parquet"), Recorded(job.activations)))
    seconds["digests"] = time.perf_counter() - start - sum(seconds.values())
    return seconds


def encoding(study: Study, width: int, making: Work) -> EncodeJob:
    """The job of `latents` at one width."""
    config = variant("saes", "sae_lens").Config(
        kind="sae_lens", hookpoint=POINT, width=width, loss="topk", folder=study.out(f"sae-{width}")
    )
    return EncodeJob(
        making=making,
        name=f"sae-{width}",
        config=config,
        sae=study.out(f"sae-{width}"),
        activations=study.out("activations"),
        tokens=study.out("tokens"),
        model=study.out("model"),
        subject_dtype=study.subject_dtype,
        sizes=kept_by_segment(Recorded(study.out("activations")).kept, study.shard_contexts),
        dtype="float16",
        device=study.device,
        threads=study.threads,
        batch_contexts=study.batch_contexts,
        batch_tokens=study.batch_tokens,
        block_latents=study.block_latents,
        shard_contexts=study.shard_contexts,
    )


def bare_model(study: Study) -> Any:
    """The subject with no more layers than are read, and without the norm that would follow: transformers alone."""
    dtype = getattr(torch, study.subject_dtype)
    model = AutoModel.from_pretrained(study.out("model"), num_hidden_layers=study.n_layers, dtype=dtype, local_files_only=True)
    model.norm = torch.nn.Identity()
    return model.to(device_of(study.device)).eval()


def _write_subject(study: Study, making: Work) -> None:
    heads = max(1, study.d_in // 64)
    shape: dict[str, Any] = {"hidden_size": study.d_in, "num_hidden_layers": study.n_layers + 2, "num_attention_heads": heads}
    shape |= {"num_key_value_heads": heads // 3 if heads % 3 == 0 else heads, "intermediate_size": study.d_in * 8 // 3}
    shape |= {"vocab_size": study.vocabulary, "max_position_embeddings": 8192}
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True, initializer_range=0.05))
    model.to(getattr(torch, study.subject_dtype)).save_pretrained(making.folder)


def _write_tokens(study: Study, making: Work) -> None:
    rng = np.random.default_rng(0)
    for number, first in enumerate(range(0, study.n_contexts, study.shard_contexts)):
        shape = min(study.shard_contexts, study.n_contexts - first), study.context
        arrays = {"tokens": rng.integers(study.vocabulary, size=shape, dtype=np.uint32), "document": np.zeros(shape, dtype=np.int32)}
        arrays |= {name: np.zeros(shape, dtype=np.uint32) for name in ("text_start", "text_end")}
        making.write_arrays(f"shard-{number:05d}.safetensors", arrays | {"special": np.zeros(shape, dtype=np.uint8)})
    making.write_table("documents.parquet", [{"document": 0, "name": "random", "text": ""}])


def _made(making: Work | None) -> Work:
    if making is None:
        raise RuntimeError("a benchmark's folder was there before it was made; delete .cache/bench-*")
    return making


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def line(name: str, values: Mapping[str, object]) -> str:
    """`NAME key=value ...`, floats with three significant digits."""
    shown = {key: f"{value:#.3g}".rstrip(".") if isinstance(value, float) else value for key, value in values.items()}
    return " ".join([name, *(f"{key}={value}" for key, value in shown.items())])
