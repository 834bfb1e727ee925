"""131k latents of one SAE and explainer, and their comparison, to a real `mlflow server` on loopback: seconds, and requests.

Results are made up: three scorers of every latent, one of which asks a judge twice a latent, with every reply in the store, so that
costs are summed too. Published are two runs; `requests` are all that the client sends, counted where it sends them. A first study
of a 16th of the latents shows that their number does not depend on the latents. The server keeps its runs in SQLite; it is
started, and the tables are made, before the clock runs. With QUICK=1: 8,192 latents.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import requests

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]
from latentry import contracts  # noqa: E402
from latentry.clients.reply_store import ReplyStore  # noqa: E402
from latentry.params import Params, TrackingSettings  # noqa: E402
from latentry.records import Reply, Status  # noqa: E402
from latentry.tracking.publish import track  # noqa: E402
from latentry.tracking.server import HOST, quiet_environment  # noqa: E402
from made_up_study import make_study  # noqa: E402 (the path is set above)
from mlflow_server import free_port, serving  # noqa: E402

QUICK = bool(os.environ.get("QUICK"))
N = 8_192 if QUICK else 131_072
SAE, EXPLAINER = "topk-1k", "default"
SCORERS = ("embedding", "detection", "fuzzing")
CALLS_PER_LATENT = 2
JUDGMENTS_PER_CALL = 5


def make_results(root: Path, n: int) -> None:
    """A study whose first SAE has `n` latents."""
    make_study(root, n_latents=12, widths={"1k": 1024})
    rng = np.random.default_rng(0)
    comparison = root / "data" / "comparison"
    for name, rows in {"saes.parquet": "sae", "cells.parquet": "sae"}.items():
        table = pq.read_table(comparison / name)
        kept = table.filter(pa.compute.equal(table[rows], SAE))
        if name == "cells.parquet":
            kept = kept.filter(pa.compute.equal(kept["explainer"], EXPLAINER))
        pq.write_table(kept, comparison / name)
    parts = [latents_of(scorer, n, rng) for scorer in SCORERS]
    pq.write_table(pa.concat_tables(parts), comparison / "latents.parquet")
    keys = [f"{SAE}-{n}-{latent}-{call}" for latent in range(n) for call in range(CALLS_PER_LATENT)]
    pq.write_table(judgments_of(n, keys), root / "data" / "scores" / SAE / "detection" / "judgments.parquet")
    keep_replies(root, root / "data", keys)


def latents_of(scorer: str, n: int, rng: np.random.Generator) -> pa.Table:
    """One scorer's rows of the latents' table."""
    schema = contracts.COMPARISON.tables["latents.parquet"]
    texts = {"sae": SAE, "explainer": EXPLAINER, "scorer": scorer, "explanation_status": "ok", "status": "ok"}
    columns: dict[str, Any] = {name: pa.nulls(n, schema.field(name).type) for name in schema.names}
    columns |= {name: [text] * n for name, text in texts.items()}
    columns |= {"latent": np.arange(n), "explanation": [f"mentions of ships at sea, of the {latent}th kind" for latent in range(n)]}
    columns |= {"firing_frequency": rng.lognormal(-7, 1, n), "inclusion_probability": np.ones(n)}
    columns |= {name: rng.beta(8, 3, n) for name in schema.names if name.startswith(("auroc", "balanced_accuracy", "null_auroc"))}
    return pa.table(columns).cast(schema)


def judgments_of(n: int, keys: list[str]) -> pa.Table:
    """What the judge said, with the key of the call that each judgment came by."""
    n_rows = n * CALLS_PER_LATENT * JUDGMENTS_PER_CALL
    schema = contracts.SCORES.tables["judgments.parquet"]
    columns: dict[str, Any] = {name: pa.nulls(n_rows, schema.field(name).type) for name in schema.names}
    columns |= {"explainer": [EXPLAINER] * n_rows, "latent": np.repeat(np.arange(n), CALLS_PER_LATENT * JUDGMENTS_PER_CALL)}
    columns |= {"reply_key": [key for key in keys for _ in range(JUDGMENTS_PER_CALL)], "status": ["ok"] * n_rows}
    return pa.table(columns).cast(schema)


def keep_replies(root: Path, data: Path, keys: list[str]) -> None:
    """Every reply behind the results, as the pool keeps them."""
    tables = [data / "explanations" / SAE / "explanations.parquet", data / "scores" / SAE / "fuzzing" / "judgments.parquet"]
    others = [key for path in tables for key in pq.read_table(path, columns=["reply_key"])["reply_key"].to_pylist() if key]
    store = ReplyStore(root / ".cache" / "replies")
    store.keep(dict.fromkeys([*keys, *others], Reply(status=Status.OK, text="yes", detail="", prompt_tokens=300, reply_tokens=5)))
    store.close()


def params_of(n: int) -> Params:
    """The parameters of the study, as far as tracking reads them."""
    judged = SimpleNamespace(client="judge")
    return Params.model_construct(
        seed=7,
        saes={SAE: None},
        scorers=dict.fromkeys(SCORERS, judged),
        explainers={EXPLAINER: judged},
        clients={"judge": SimpleNamespace(model="a-small-judge")},
        examples=SimpleNamespace(n_latents=n),
        tracking=TrackingSettings(experiment=f"{n} latents", required=True),
    )


class Counted:
    """The requests that this process sends, while it stands."""

    def __enter__(self) -> "Counted":
        self.n, self._send = 0, requests.Session.send
        counted = self

        def send(session: requests.Session, *arguments: Any, **options: Any) -> requests.Response:
            counted.n += 1
            return counted._send(session, *arguments, **options)

        requests.Session.send = send
        return self

    def __exit__(self, *_: object) -> None:
        requests.Session.send = self._send


def measured(folder: Path, n: int) -> tuple[float, int, int]:
    """Seconds and requests to publish `n` latents, and requests to find that all is there."""
    root = folder / f"study-{n}"
    make_results(root, n)
    start = time.perf_counter()
    with Counted() as first:
        made = track(params_of(n), root, root)
    seconds = time.perf_counter() - start
    with Counted() as again:
        track(params_of(n), root, root)
    if len(made.published) != 2:
        raise RuntimeError(f"{n} latents made {made.published}, wanted two runs")
    return seconds, first.n, again.n


def main() -> None:
    """Start the server, publish the small study and the large one."""
    quiet_environment()
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        with serving(folder, port):
            os.environ["MLFLOW_TRACKING_URI"] = f"http://{HOST}:{port}"
            small_s, small_requests, _ = measured(folder, N // 16)
            seconds, n_requests, again = measured(folder, N)
    small = f"small_n={N // 16} small_s={small_s:.1f} small_requests={small_requests}"
    print(f"track n={N} s={seconds:.1f} requests={n_requests} again_requests={again} {small}")  # noqa: T201


if __name__ == "__main__":
    main()
