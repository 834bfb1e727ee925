"""Whether a command that is not run is at least one that its program knows: its target, options and files are looked up."""

import subprocess
from collections.abc import Callable, Mapping, Sequence

import click

from docs.commands import PLACEHOLDER, Command
from docs.pages import ROOT


def fault_of(command: Command) -> str:
    """What the program would say is wrong; empty where nothing is, or where the program is not ours to know."""
    program, *arguments = [PLACEHOLDER.sub("1", word) for word in command.words]
    check = _CHECKS.get(program.rpartition("/")[2])
    fault = check(arguments) if check else ""
    return "" if fault.startswith("Invalid value") and PLACEHOLDER.search(command.text) else fault


def _latentry(arguments: Sequence[str]) -> str:
    from latentry.cli import commands

    return _click(commands, "latentry", arguments)


def _mlflow(arguments: Sequence[str]) -> str:
    from mlflow.cli import cli

    return _click(cli, "mlflow", arguments)


def _ray(arguments: Sequence[str]) -> str:
    from ray.scripts.scripts import cli

    return _click(cli, "ray", arguments)


def _click(command: click.Command, name: str, given: Sequence[str]) -> str:
    """Parse without running; whether a file is there is not asked."""
    arguments = list(given)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        found = command.get_command(click.Context(command), name)
        if found is None:
            return f"there is no {name}"
        command = found
    if "--help" in arguments:
        return ""
    if isinstance(command, click.Group):
        return "" if arguments else f"{name} wants a subcommand"
    try:
        command.make_context(name, arguments)
    except click.ClickException as error:
        return "" if "does not exist" in error.format_message() else error.format_message()
    return ""


def _dvc(arguments: Sequence[str]) -> str:
    from dvc.cli import DvcParserError, parse_args

    try:
        parse_args(list(arguments))
    except DvcParserError:
        return f"dvc does not know {' '.join(arguments)}"
    except SystemExit as stop:  # --help and --version
        return "" if not stop.code else f"dvc ends with {stop.code}"
    return ""


def _make(arguments: Sequence[str]) -> str:
    done = subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def _python(arguments: Sequence[str]) -> str:
    if arguments[0] == "-m":
        return "" if arguments[1] in ("pytest", "pip", "venv") else f"-m {arguments[1]} is not known to this test"
    return "" if arguments[0] == "-c" or (ROOT / arguments[0]).is_file() else f"{arguments[0]} is not there"


def _sbatch(arguments: Sequence[str]) -> str:
    missing = [word for word in arguments if word.endswith(".sh") and not (ROOT / word).is_file()]
    return f"{missing} are not there" if missing else ""


_CHECKS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "latentry": _latentry,
    "mlflow": _mlflow,
    "ray": _ray,
    "dvc": _dvc,
    "make": _make,
    "python": _python,
    "sbatch": _sbatch,
}
