"""Hostile text in explanations, windows and tokens, on the report and the explorer in a real browser: it is read, and nothing obeys it."""

import pytest

from hostile_text import HOSTILE, poison
from latentry import contracts, store
from latentry.explorer.report import write_report
from latentry.explorer.site.write import write_site
from made_up_study import make_study

pytestmark = pytest.mark.slow
SETTINGS = {"Corpus": HOSTILE[0], HOSTILE[1]: HOSTILE[2]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("study"), n_latents=24, widths={"1k": 1024})
    poison(study / "data")
    tables = {name: store.read_table(study / "data" / "comparison", contracts.COMPARISON, name) for name in contracts.COMPARISON.tables}
    out = tmp_path_factory.mktemp("report")
    write_report(data=study / "data", tables=tables, settings=SETTINGS, out=out / "index.html")
    write_site(data=study / "data", tables=tables, settings=SETTINGS, out=out)
    return out


@pytest.fixture
def page(browser, folder):
    page = browser.new_page()
    page.asked, page.faults = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: page.faults.append(dialog.message) or dialog.dismiss())
    page.on("popup", lambda popup: page.faults.append(popup.url))
    yield page
    assert page.faults == []
    assert [url for url in page.asked if not url.startswith(folder.as_uri())] == []
    assert "owned" not in page.title()
    page.close()


def planted(page):
    """Elements that only the hostile texts would make."""
    return page.locator("main script, main iframe, main img:not([src^='data:']), main a[href^='javascript:'], main svg[onload], main style")


def test_the_report_shows_hostile_text_as_text(page, folder):
    page.goto((folder / "index.html").as_uri())
    page.wait_for_timeout(500)
    said = page.inner_text("body")
    assert HOSTILE[0] in said and "{{ 7*7 }}" in said and "49" not in said.split("{{ 7*7 }}")[1][:40]
    assert planted(page).count() == 0


def test_every_page_of_the_explorer_shows_hostile_text_as_text(page, folder):
    page.goto((folder / "latents.html").as_uri())
    page.wait_for_selector("body[data-ready]")
    assert planted(page).count() == 0
    seen = page.inner_text("main")
    for place in range(24):
        page.goto((folder / "latents.html").as_uri() + "#")
        page.locator("#rows tr.first a").nth(place).click()
        page.wait_for_selector("#latent:not([hidden])")
        assert planted(page).count() == 0
        seen += page.inner_text("main")
    for text in HOSTILE[:5]:
        assert text in seen


def test_hostile_words_and_addresses_are_searched_for_and_not_obeyed(page, folder):
    for query in ("constructor", "__proto__", "<script>alert(1)</script>", "\u202e", "tostring"):
        page.goto((folder / "latents.html").as_uri())
        page.wait_for_selector("body[data-ready]")
        page.fill("#query", query)
        page.wait_for_timeout(300)
        assert planted(page).count() == 0
    for address in ("#latent=__proto__%2F1", "#latent=constructor%2Fprototype", "#q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "#sae=<b>"):
        page.goto((folder / "latents.html").as_uri() + address)
        page.wait_for_timeout(300)
        assert planted(page).count() == 0
