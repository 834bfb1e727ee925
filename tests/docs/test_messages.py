"""Every message of latentry's own that docs/troubleshooting.md explains is one that the code says."""

import re
from functools import cache

import pytest

from docs.pages import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^#### (.*)$", PAGE, re.MULTILINE)
OF_OTHERS = {
    "command not found: dvc": "the shell",
    "latentry": "the shell",
    "dvc status": "a command",
    "track": "a stage",
    "dvc.lock": "a file",
    "Unable to acquire lock": "DVC",
    "failed to reproduce 'compare'": "DVC",
    "No such file or directory": "the system",
    "data/jacobians": "a folder",
    "Killed": "the system",
    "latentry needs Python 3.11 or newer": "the Makefile",
    "params.yaml: … faults": "put together by ParamsError",
}
"""What stands in a heading as code and is no message of src, and whose it is."""
QUOTED = [quote for heading in HEADINGS if not heading.startswith("Status ") for quote in re.findall(r"`([^`]+)`", heading)]
STATUSES = [quote for heading in HEADINGS if heading.startswith("Status ") for quote in re.findall(r"`([^`]+)`", heading)]


@cache
def sources() -> str:
    """All of src, a text that is broken over several lines on one."""
    whole = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    return re.sub(r'"\n\s*f?"', "", whole)


def is_said(message: str) -> bool:
    """Whether a line of the sources has the message's parts in their order; `…` stands for what differs."""
    parts = [part.strip() for part in message.split("…") if part.strip(" :;,.")]
    return re.search(".*".join(map(re.escape, parts)), sources()) is not None


@pytest.mark.parametrize("message", [quote for quote in QUOTED if quote not in OF_OTHERS])
def test_a_message_of_the_page_is_one_of_the_code(message):
    assert is_said(message)


def test_what_others_say_stands_on_the_page():
    assert set(OF_OTHERS) <= set(QUOTED)
    assert "latentry needs Python 3.11 or newer" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_status_of_a_row_is_explained_and_no_other():
    from latentry.records import Status

    assert set(STATUSES) == {status.value for status in Status} - {Status.OK.value}


def test_a_message_that_nobody_says_is_found_out():
    assert not is_said("latents are out of stock: …; order more")
