"""Every command in README.md, CONTRIBUTING.md and docs/ is run in a project as its reader has it, or stands in a short table of those that cannot be.

What a page needs beyond the finished small example is made by its entry in `PREPARED`.
"""

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from docs.commands import NOT_HERE, PLACEHOLDER, RUN, Command, everything, mentioned, of_blocks, of_tables
from docs.example_project import shell_environment
from docs.pages import PAGES, name_of
from docs.parsing import fault_of
from docs.readers import another_repository, others, own_model

FILLED: Mapping[str, str] = {"https://mlflow.example.org": "sqlite:///elsewhere.db", "https://git.example.org/them/study": "../them"}
"""What stands on the pages for something of the reader's, and what is there in the tests."""
AFTER: Mapping[str, str] = {"dvc queue start": "while dvc queue status | grep -E ' (Queued|Running)( |$)' > /dev/null; do sleep 3; done"}
"""What a reader waits for after a command that goes on in the background. (`grep -q` would end before it has read all, and so end `dvc` and the loop.)"""
NO_COMMANDS = {"latentry needs Python 3.11 or newer"}
"""A sentence that begins with a program's name."""


PREPARED: Mapping[str, Callable[[Path], None]] = {
    "docs/own-models.md": own_model,
    "docs/import.md": others,
    "docs/sharing.md": another_repository,
}
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
