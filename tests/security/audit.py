"""`make audit`: every package that is installed here against the known vulnerabilities that PyPI tells of; needs a network.

pip-audit does it, in an environment of its own under .cache. Always true: what could not be checked is never counted as fine.
Exits with 0 when all were checked and none is known to be vulnerable, 1 when one is, 2 when some could not be checked.
"""

import json
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".cache" / "audit"
PIP_AUDIT = "pip-audit>=2.7,<3"
SHOWN = 10
"""Packages named of those that could not be checked."""


def installed() -> list[str]:
    """What stands in this environment, as pinned requirements: without the project itself, and without the build's own label (`+cpu`)."""
    found = {(one.metadata["Name"] or "").lower(): one.version.partition("+")[0] for one in distributions()}
    return [f"{name}=={version}" for name, version in sorted(found.items()) if name and name != "latentry"]


def auditor() -> Path:
    """pip-audit's own environment, made when it is not there.

    Raises:
        SystemExit: it cannot be installed.
    """
    python = PLACE / "env" / "bin" / "python"
    if not (PLACE / "env" / "bin" / "pip-audit").is_file():
        venv.create(PLACE / "env", with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PIP_AUDIT]
        if subprocess.run(command, check=False).returncode:
            sys.stderr.write(f"audit: {PIP_AUDIT} cannot be installed; a package index is needed: nothing was checked\n")
            raise SystemExit(2)
    return PLACE / "env" / "bin" / "pip-audit"


def audited(requirements: Sequence[str]) -> list[Mapping[str, Any]]:
    """What pip-audit says of each package; empty where it could ask nobody."""
    listed, told = PLACE / "requirements.txt", PLACE / "audit.json"
    listed.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    told.unlink(missing_ok=True)
    options = ["--requirement", str(listed), "--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "15"]
    done = subprocess.run(
        [str(auditor()), *options, "--format", "json", "--output", str(told)], capture_output=True, text=True, check=False
    )
    if not told.is_file():
        sys.stderr.write(done.stderr[-1_000:])
        return []
    return json.loads(told.read_text(encoding="utf-8"))["dependencies"]


def said(packages: Sequence[Mapping[str, Any]], n_asked: int) -> tuple[list[str], int]:
    """The outcome in lines, and the exit code."""
    checked = [one for one in packages if "skip_reason" not in one]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    lines = [
        f"VULNERABLE {one['name']} {one['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'no version yet'}"
        for one in checked
        for fault in one["vulns"]
    ]
    n_faulty = len(lines)
    if not checked:
        lines.append("NOT CHECKED: nobody could be asked of any package; `make audit` needs a network that reaches the index of packages")
    elif skipped:
        lines.append(f"NOT CHECKED: {len(skipped)} packages ({', '.join(skipped[:SHOWN])}{' and more' * (len(skipped) > SHOWN)})")
    lines.append(f"audit: {len(checked)} of {n_asked} packages checked, {n_faulty} known vulnerabilities")
    return lines, 1 if n_faulty else 2 if len(checked) < n_asked else 0


if __name__ == "__main__":
    PLACE.mkdir(parents=True, exist_ok=True)
    wanted = installed()
    outcome, code = said(audited(wanted), len(wanted))
    print("\n".join(outcome))  # noqa: T201 (a command)
    sys.exit(code)
