"""The commands of the documentation: read off its pages, and which of them cannot be run on any machine.

A command is a line of a fenced block `sh` or `bash`, or code at the head of a row of a table. A block is run as it stands, unless the line
above it says otherwise: `<!-- not run: REASON -->`, or `<!-- ends with 3 -->` where its last command fails as the page says.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from docs.pages import PAGES, Block, blocks, name_of, prose

OURS = ("latentry", "dvc", "make", "git", "python", "mlflow")
"""Programs whose commands are told from other code in tables and sentences."""
RUN = frozenset(
    [
        "latentry",
        "dvc",
        "git",
        "make",
        "python",
        "cp",
        "cd",
        "mkdir",
        "ls",
        "cat",
        "head",
        "test",
        "rm",
        "mv",
        "source",
        "export",
        "unzip",
        "tar",
        "sha256sum",
        "sed",
        "touch",
        "echo",
        "bash",
        "jq",
        "grep",
    ]
)
"""Programs that run here, in a project of the test's own."""
NOT_HERE: Mapping[str, str] = {
    r"make (setup|repro|repro-tiny|repro-scorers|repro-jacobian|test|test-all|check)( \S+=\S+)*$": "takes minutes to hours; tests/pipeline and CI run what is behind it",
    r"make repro-parallel": "minutes; tests/pipeline/test_sweeps.py runs its commands",
    r"make (audit|bench-\S+)": "a network, or a benchmark",
    r"(make|latentry) ui\b|make docs-serve|mlflow server": "serves until it is stopped; tests/browser and tests/pipeline/test_mlflow_server.py start it",
    r"ray start|vllm serve|sbatch|ssh ": "a cluster",
    r"pip install|(.*/)?python -m pip|curl |hf ": "a network",
    r"createuser|createdb|pg_dump|sqlite3|mlflow (db upgrade|gc)": "a database of the reader's",
    r"export (MLFLOW_BACKEND_STORE_URI|MLFLOW_ARTIFACTS_DESTINATION|AWS_\w+|GOOGLE_\w+)=": "belongs to a server or store of the reader's",
    r"python benchmarks/": "a benchmark; benchmarks/README.md",
    r"python docs/jacobian_table.py": "tells of what `make repro-jacobian` made",
    r"python -m pytest": "tests/docs/test_adding_a_scorer.py runs it",
}
"""Commands that are not run, by how they begin, and why. What can be known of them is still checked: targets, options, files."""

PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b(?!=)|\.\.\.")
"""What stands for a name of the reader's own: in tables and sentences, where commands are not run then."""

_ABOVE = re.compile(r"<!-- (not run: .+?|ends with \d+) -->\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command, without its comment."""

    text: str
    place: str
    """Page and line of its block."""
    reason: str = ""
    """Why it is not run; empty where it is."""
    code: int = 0
    """What it ends with."""

    @property
    def words(self) -> list[str]:
        """As a shell splits it, variables set before the program left out; up to the first `&&`, `|` or `;`."""
        words = shlex.split(self.text, comments=True)
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        ends = [place for place, word in enumerate(words) if word in ("&&", "|", "||", ";", "&", ">", ">>", "2>&1")]
        return words[: ends[0]] if ends else words


def of_blocks(page: Path) -> list[Command]:
    """The commands of a page's shell blocks, in order."""
    text = page.read_text(encoding="utf-8").splitlines()
    return [
        command
        for block in blocks("sh", "bash", pages=(page,))
        for command in _of_block(block, text[block.line - 2] if block.line > 1 else "")
    ]


def _of_block(block: Block, line_above: str) -> Iterator[Command]:
    found = _ABOVE.search(line_above)
    said = found[1] if found else ""
    lines = list(_logical_lines(block.text))
    for number, line in enumerate(lines):
        is_last = number == len(lines) - 1
        code = int(said.rpartition(" ")[2]) if said.startswith("ends with") and is_last else 0
        reason = said.removeprefix("not run: ") if said.startswith("not run") else reason_of(line)
        yield Command(text=line, place=block.name, reason=reason, code=code)


def _logical_lines(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if words := shlex.split(line, comments=True):
            yield line.strip() if words else ""


def of_tables(page: Path) -> list[Command]:
    """The commands at the head of a table's rows."""
    found = re.findall(r"^\| `([^`]+)`", prose(page), re.MULTILINE)
    return [
        Command(text=text, place=name_of(page), reason="for any name" if PLACEHOLDER.search(text) else reason_of(text))
        for text in found
        if text.split()[0] in OURS and " " in text
    ]


def mentioned(page: Path) -> list[Command]:
    """Commands anywhere else in a page's sentences and cells."""
    found = re.findall(r"`([^`\n]+)`", prose(page))
    return [
        Command(text=text, place=name_of(page)) for text in found if text.split()[:1] and text.split()[0] in OURS and " " in text.strip()
    ]


def everything() -> list[Command]:
    """Every command of every page, run or not."""
    return [command for page in PAGES for command in (*of_blocks(page), *of_tables(page), *mentioned(page))]


def reason_of(text: str) -> str:
    """Why a command is not run; empty where it is."""
    text = re.sub(r"\s+#\s.*$", "", text)
    begun = re.sub(r"^(\w+=\S+ )+", "", text)
    return next((reason for pattern, reason in NOT_HERE.items() if re.match(pattern, begun) or re.match(pattern, text)), "")
