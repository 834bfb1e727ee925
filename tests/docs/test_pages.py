"""The pages hang together: every one is on the site, every link leads somewhere, every block names its language, nothing generated is stale."""

import re
import sys

import pytest
import yaml

from docs.pages import PAGES, ROOT, Block, blocks, name_of, prose
from latentry.cli import commands
from latentry.params import parse_params
from latentry.preflight import unwritten
from latentry.registry import kinds
from small_params import small_params

LANGUAGES = {"sh", "bash", "yaml", "python", "text", "json", "markdown"}
NOT_PARAMS = re.compile(r"<!-- not params: .+? -->\s*$")


def generated():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from generate import pages
    finally:
        sys.path.pop(0)
    return pages()


def test_the_generated_parts_are_what_the_code_says():
    stale = [name_of(page) for page, text in generated().items() if page.read_text(encoding="utf-8") != text]
    assert not stale, f"stale: {stale}; run `make docs`"


def test_every_knob_says_what_it_means():
    assert re.findall(r"^\| `(\S+)` \|.*\|  \|$", (ROOT / "docs" / "params.md").read_text(encoding="utf-8"), re.MULTILINE) == []


def test_the_site_is_built_without_a_warning_and_asks_the_net_for_nothing(tmp_path, monkeypatch):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "true")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r'(?:src|<link[^>]*href)="(https?:[^"]+)"', page.read_text(encoding="utf-8"))
        assert not loaded, page.name
    assert (tmp_path / "search" / "search_index.js").is_file()


def test_every_page_is_in_the_navigation_of_the_site():
    listed = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_to_a_file_or_heading_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    lost = [link for link in links if not link.startswith(("http://", "https://", "mailto:")) and not leads_somewhere(page, link)]
    assert not lost


def leads_somewhere(page, link: str) -> bool:
    """The file is there, and so is the heading."""
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not heading or heading in anchors(target.read_text(encoding="utf-8")))


def anchors(text: str) -> set[str]:
    """The headings' names in links, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize(
    ("room", "page"), [("scorers", "scorers.md"), ("explainers", "explainers.md"), ("sampling", "sampling.md"), ("saes", "saes.md")]
)
def test_every_kind_stands_on_the_page_of_its_room(room, page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [kind for kind in kinds(room) if not re.search(rf"\b{kind}\b", text)] == []


def test_every_command_of_latentry_and_of_make_stands_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    asked = [f"latentry {name}" for name in commands.commands] + [f"make {target}" for target in targets if not target.startswith("bench-")]
    assert [command for command in asked if command not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_names_its_language(page):
    assert {block.language for block in blocks(pages=(page,))} <= LANGUAGES


def pieces() -> list[Block]:
    """The YAML blocks, which are params unless the line above says what else; docs/saes.md has a test of its own."""
    above = {page: (ROOT / page).read_text(encoding="utf-8").splitlines() for page in map(name_of, PAGES)}
    found = [block for block in blocks("yaml") if block.page != "docs/saes.md"]
    return [block for block in found if not NOT_PARAMS.search(above[block.page][block.line - 2])]


def joined(piece: dict) -> dict:
    """A small tree with the piece in it; what the piece names elsewhere is made up."""
    tree = small_params()
    for section, value in piece.items():
        tree[section] = tree[section] | value if isinstance(tree.get(section), dict) and section != "corpus" else value
    for model in ("minilm", "qwen"):
        tree["models"].setdefault(model, tree["models"]["encoder"])
    if "examples" in piece:
        tree["examples"]["contrasts"] = tree["examples"].get("contrasts") or {"random": {}}
    for sae in tree["saes"].values():
        tree["subject"]["hookpoints"].setdefault(sae["hookpoint"], {"module": "somewhere"})
    for name in tree["run"].get("clients", {}):
        tree["clients"].setdefault(name, {"kind": "openai_compatible", "model": "any"})
    return tree


@pytest.mark.parametrize("block", pieces(), ids=lambda block: block.name)
def test_a_piece_of_params_is_right(block):
    tree = yaml.safe_load(block.text)
    if "seed" not in tree:
        parse_params(joined(tree))
    else:  # a whole file: with everything that DVC looks for
        assert list(unwritten(parse_params(tree), ROOT / "dvc.yaml")) == []


def test_the_readme_is_short_and_shows_the_whole_of_a_study():
    readme = [block for block in pieces() if block.page == "README.md"]
    sections = {section for block in readme for section in yaml.safe_load(block.text)}
    assert {"models", "subject", "corpus", "saes", "clients", "scorers", "run"} <= sections
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 180
