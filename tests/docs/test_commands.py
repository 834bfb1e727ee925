"""Every command in README.md, CONTRIBUTING.md and docs/ is run in a project as its reader has it, or stands in a short table of those that cannot be.

What a page needs beyond the finished small example is made by its entry in `PREPARED`.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from docs.commands import NOT_HERE, PLACEHOLDER, RUN, Command, everything, mentioned, of_blocks, of_tables
from docs.example_project import shell_environment, small_example
from docs.pages import PAGES, ROOT, blocks, name_of
from docs.parsing import fault_of

FILLED: Mapping[str, str] = {"https://mlflow.example.org": "sqlite:///elsewhere.db"}
"""What stands on the pages for something of the reader's, and what is there in the tests."""
AFTER: Mapping[str, str] = {"dvc queue start": "while dvc queue status | grep -Eq ' (Queued|Running) '; do sleep 3; done"}
"""What a reader waits for after a command that goes on in the background."""
NO_COMMANDS = {"latentry needs Python 3.11 or newer"}
"""A sentence that begins with a program's name."""


def own_model(project: Path) -> None:
    """docs/own-models.md: its whole params.yaml, with a model, texts and a SAE of the project's for those it names."""
    whole = next(block.text for block in blocks("yaml", pages=(ROOT / "docs" / "own-models.md",)) if block.text.startswith("seed:"))
    tree = yaml.safe_load(whole)
    small = small_example()
    tree["models"]["my-model"]["sources"] = [{"kind": "folder", "path": str(project / "data" / "models" / "smollm2")}]
    tree["models"]["minilm"] = small["models"]["minilm"]
    tree["subject"] |= {"dtype": "float32", "hookpoints": {"resid-6": {"module": "model.layers.1"}}}
    tree["saes"]["mine"] |= {"folder": str(project / "data" / "saes" / "topk-2k"), "width": 160}
    tree["saes"]["chance"] |= {"width": 160, "k": 4}
    tree["corpus"]["path"] = "corpus/sotu-and-moby-dick.jsonl.xz"
    tree |= {"tokens": small["tokens"], "gate": small["gate"], "run": small["run"], "activations": {"dtype": "float32"}}
    tree["examples"] |= {"n_latents": 4, "min_examples": 20, "explain": {"n": 8, "n_contrast": 8}}
    tree["examples"]["held_out"] = {"n_activating": 10, "n_contrast": 10}
    (project / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")


def others(project: Path) -> None:
    """docs/import.md: results of others where the page has them, which are the specimens."""
    specimens = ROOT / "tests" / "specimens"
    shutil.copytree(specimens / "delphi-0.1.3", project / "results" / "their-run")
    shutil.copyfile(specimens / "saebench-0.6.0.json", project / "their-sae_eval_results.json")
    (project / "labels.csv").write_text("latent,text,author\n3,words about tax,A. Person\n", encoding="utf-8")
    batches = project / "downloads" / "6-res-jb" / "explanations"
    batches.mkdir(parents=True)
    row = {"modelId": "gpt2-small", "layer": "6-res-jb", "index": "3", "description": "tax", "explanationModelName": "gpt-4o-mini"}
    rows = [row | {"typeName": method} for method in ("oai_token-act-pair", "np_max-act")]
    (batches / "batch-0.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


PREPARED: Mapping[str, Callable[[Path], None]] = {"docs/own-models.md": own_model, "docs/import.md": others}
"""By page: what its reader has done before, beyond the finished small example."""


def script_of(commands: Sequence[Command]) -> str:
    """One shell session with the commands that run, each said before it is."""
    lines = ["set -eo pipefail"]
    for command in commands:
        text = command.text
        for written, there in FILLED.items():
            text = text.replace(written, there)
        lines.append(f"echo '+ {command.place}'")
        lines += [f"set +e; {text}", f"[ $? -eq {command.code} ] || exit 99", "set -e"] if command.code else [text]
        lines += [waited for begun, waited in AFTER.items() if text.startswith(begun)]
    return "\n".join(lines)


def run_page(page: Path, project: Path, commands: Sequence[Command]) -> None:
    """Run a page's commands one after another, as its reader types them."""
    if prepare := PREPARED.get(name_of(page)):
        prepare(project)
    done = subprocess.run(
        ["bash", "-c", script_of(commands)],
        cwd=project,
        env=shell_environment(project),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1700,
    )
    assert done.returncode == 0, f"{name_of(page)}: ended with {done.returncode}\n{done.stdout[-4000:]}"


def runnable(page: Path) -> list[Command]:
    return [command for command in (*of_blocks(page), *of_tables(page)) if not command.reason]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=name_of)
def test_the_commands_of_a_page_do_what_it_says(page, project_of):
    run_page(page, project_of(page.stem), runnable(page))


def test_every_command_is_run_or_has_its_reason():
    for page in PAGES:
        for command in runnable(page):
            assert command.words[0].rpartition("/")[2] in RUN, f"{command.place}: {command.text}: no test knows this program"
            assert not PLACEHOLDER.search(command.text), f"{command.place}: {command.text}: write a name that the small example has"


def test_every_reason_is_needed():
    texts = [command.text for command in everything()]
    unused = [pattern for pattern in NOT_HERE if not any(re.search(rf"(^|\s){pattern}", text) for text in texts)]
    assert not unused


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_not_run_is_known_to_its_program(page):
    not_run = [command for command in (*of_blocks(page), *of_tables(page)) if command.reason]
    faults = {command.text: fault for command in not_run if (fault := fault_of(command))}
    names = [command for command in mentioned(page) if command.text not in NO_COMMANDS]
    faults |= {command.text: fault for command in names if (fault := fault_of(command)) and fault_of(with_help(command))}
    assert not faults


def with_help(command: Command) -> Command:
    """A sentence may name a command without what it needs: then it must be one whose help there is."""
    return command if " -" in command.text or command.text.startswith("make ") else replace(command, text=f"{command.text} --help")


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    ["latentry estimat", "latentry show --al topk-2k 1", "dvc reprod", "dvc repro --nonsense", "make reprod", "python docs/none.py"],
)
def test_what_no_program_knows_is_found_out(wrong):
    assert fault_of(with_help(Command(text=wrong, place="here")))
