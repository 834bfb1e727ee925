"""A specimen of delphi's results, written and measured by delphi itself (eai-delphi 0.1.3), its judge answered by rule.

pip install --no-deps --target NATIVE eai-delphi==0.1.3 orjson blobfile simple_parsing aiofiles asyncer sniffio
PYTHONPATH=NATIVE python tests/specimens/make_delphi.py

The engine of its offline client and its search of neighbours are not needed; stand-ins are imported in their places.
"""

import asyncio
import json
import random
import shutil
import sys
from math import log
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import datasets  # noqa: F401 (looks for faiss itself, so it comes before the stand-ins)


class _StandIn(MagicMock):
    __path__ = ()


for missing in ("faiss", "tiktoken", "vllm", "vllm.distributed", "vllm.distributed.parallel_state", "vllm.inputs"):
    sys.modules[missing] = _StandIn()

import orjson  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from delphi.clients.client import Client, Response  # noqa: E402
from delphi.explainers import DefaultExplainer  # noqa: E402
from delphi.latents.latents import ActivatingExample, Latent, LatentRecord, NonActivatingExample  # noqa: E402
from delphi.log.result_analysis import compute_auc, compute_classification_metrics, compute_confusion  # noqa: E402
from delphi.scorers import DetectionScorer, FuzzingScorer  # noqa: E402

OUT = Path(__file__).parent / "delphi-0.1.3"
HOOKPOINT = "layers.1"
LATENTS = (3, 17, 40, 41, 99)
WORDS = ["The", " tax", " on", " whale", " oil", " é", "\n"]


class Judge(Client):
    """Right in most of its answers, and now and then no list at all."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__("by-rule")
        self._rng = rng

    async def generate(self, _prompt, **kwargs) -> Response:
        if "logprobs" not in kwargs and self._rng.random() < 0.2:
            return Response(text="I cannot tell.")
        says = [self._rng.randint(0, 1) for _ in range(5)]
        tops = [
            [SimpleNamespace(token="1", logprob=log(p)), SimpleNamespace(token="0", logprob=log(1 - p))] for p in map(self._grade, says)
        ]
        logprobs = [SimpleNamespace(token=str(one), top_logprobs=top) for one, top in zip(says, tops, strict=True)]
        return Response(text=f"[{', '.join(map(str, says))}]", logprobs=logprobs)

    def _grade(self, says: int) -> float:
        return 0.5 + (self._rng.uniform(0.05, 0.45) if says else -self._rng.uniform(0.05, 0.45))


class Writer(Client):
    """Explains, but one latent not."""

    async def generate(self, _prompt, **_kwargs) -> Response:
        return Response(text="no idea" if self.model == "41" else f"[EXPLANATION]: words about tax, {self.model} “quoted”")


def record_of(latent: int, rng: random.Random) -> LatentRecord:
    def example(kind, fires: float, **more):
        activations = torch.tensor([fires * rng.random() for _ in WORDS])
        return kind(tokens=torch.arange(len(WORDS)), activations=activations, str_tokens=WORDS, **more)

    test = [example(ActivatingExample, 4.0, quantile=place % 4, normalized_activations=torch.ones(len(WORDS))) for place in range(10)]
    silent = [example(NonActivatingExample, 0.0, distance=-1.0) for _ in range(15)]
    return LatentRecord(latent=Latent(HOOKPOINT, latent), test=test, train=test, not_active=silent)


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    expected = {}
    (OUT / "explanations").mkdir(parents=True)
    for latent in LATENTS:
        rng = random.Random(latent)
        record = record_of(latent, rng)
        result = asyncio.run(DefaultExplainer(Writer(str(latent)), threshold=0.3)(record))
        (OUT / "explanations" / f"{record.latent}.txt").write_bytes(orjson.dumps(result.explanation))
        record.explanation = result.explanation
        judges = {
            "detection": DetectionScorer(Judge(rng), n_examples_shown=5, log_prob=True, verbose=False),
            "fuzz": FuzzingScorer(Judge(rng), n_examples_shown=5, verbose=False),
        }
        for name, scorer in judges.items():
            score = asyncio.run(scorer(record)).score
            (OUT / "scores" / name).mkdir(parents=True, exist_ok=True)
            path = OUT / "scores" / name / f"{str(record.latent).replace('/', '--')}.txt"
            path.write_bytes(orjson.dumps(score))
            expected[f"{name} {latent}"] = measured(json.loads(path.read_text()))
    config = {"model": "a/subject", "sparse_model": "a/sae", "explainer_model": "a/writer", "explainer": "default", "scorers": list(judges)}
    (OUT / "run_config.json").write_text(json.dumps(config, indent=4))
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def measured(samples: list[dict]) -> dict[str, float | int | None]:
    """By delphi's own functions."""
    frame = pd.DataFrame(samples)
    found = compute_classification_metrics(compute_confusion(frame))
    return {
        "balanced_accuracy": float(found["accuracy"]),
        "f1": float(found["f1_score"]),
        "auroc": None if frame.probability.isna().all() else float(compute_auc(frame)),
        "n": int(found["total_examples"]),
        "n_failed": int(frame.prediction.isna().sum()),
    }


if __name__ == "__main__":
    main()
