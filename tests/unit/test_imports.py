"""What is loaded, and how long that takes, before anybody asks for work."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "mlflow", "sae_lens", "sentence_transformers", "openai", "altair", "datasets", "sklearn", "dvc"}


def after(statement: str) -> tuple[set[str], float]:
    """The heavy libraries loaded after a statement in a fresh process, and the CPU seconds that it took."""
    script = f"import sys, os; start = sum(os.times()[:2])\n{statement}\nprint(sum(os.times()[:2]) - start, *sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    seconds, *modules = said.split()
    return HEAVY & set(modules), float(seconds)


def test_importing_latentry_and_its_params_loads_nothing_heavy_and_takes_under_half_a_second():
    outcomes = [after("import latentry, latentry.params") for _ in range(3)]
    assert all(heavy == set() for heavy, _ in outcomes)
    assert min(seconds for _, seconds in outcomes) < 0.5


def test_checking_the_params_that_ship_with_all_their_variants_loads_nothing_heavy():
    assert after("from latentry.params import load_params; load_params()")[0] == set()


def test_the_command_line_loads_nothing_heavy():
    assert after("import latentry.cli")[0] == set()
