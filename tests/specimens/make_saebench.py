"""A specimen of SAEBench's autointerp results, written by SAEBench's own output class (sae-bench 0.6.0), with made-up answers.

pip install --no-deps --target NATIVE sae-bench==0.6.0
PYTHONPATH=NATIVE python tests/specimens/make_saebench.py
"""

import random
from pathlib import Path

from sae_bench.evals.autointerp.eval_config import AutoInterpEvalConfig
from sae_bench.evals.autointerp.eval_output import AutoInterpEvalOutput, AutoInterpMetricCategories, AutoInterpMetrics

OUT = Path(__file__).parent / "saebench-0.6.0.json"
LATENTS = (2, 30, 31, 600)


def main() -> None:
    rng = random.Random(0)
    config = AutoInterpEvalConfig(model_name="a/subject", n_latents=len(LATENTS), llm_batch_size=1, llm_dtype="float32")
    found = {latent: judged(latent, config.n_ex_for_scoring, rng) for latent in LATENTS}
    found[31]["score"] = 0.123  # as where fewer windows were judged than the settings say
    AutoInterpEvalOutput(
        eval_config=config,
        eval_id="0d9b9a0e-6f43-4b51-8a0b-0b4cbe1ac65b",
        datetime_epoch_millis=1733500000000,
        eval_result_metrics=AutoInterpMetricCategories(autointerp=AutoInterpMetrics(autointerp_score=0.8, autointerp_std_dev=0.1)),
        eval_result_details=[],
        eval_result_unstructured=found,
        sae_bench_commit_hash="0" * 40,
        sae_lens_id="blocks.4.hook_resid_post__trainer_10",
        sae_lens_release_id="a_release",
        sae_lens_version="6.0.0",
        sae_cfg_dict={"d_sae": 4096},
    ).to_json_file(str(OUT))


def judged(latent: int, n: int, rng: random.Random) -> dict:
    fires = sorted(rng.sample(range(1, n + 1), 4))
    said = sorted(rng.sample(range(1, n + 1), 3))
    score = sum((place in fires) == (place in said) for place in range(1, n + 1)) / n
    logs = "Generation phase\n..."
    return {
        "latent": latent,
        "explanation": f"words like {latent}",
        "logs": logs,
        "predictions": said,
        "correct seqs": fires,
        "score": score,
    }


if __name__ == "__main__":
    main()
