"""The explorer in a real browser, opened from disk: lists, searches, sorts and shows latents, by mouse and by keys; hostile text stays text."""

import shutil
from urllib.parse import quote

import numpy as np
import pytest

from latentry import contracts, store
from latentry.explorer.site.write import write_site
from made_up_study import HOSTILE, make_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("study"), n_latents=120, widths={"1k": 1024, "2k": 2048})
    tables = {name: store.read_table(study / "data" / "comparison", contracts.COMPARISON, name) for name in contracts.COMPARISON.tables}
    out = tmp_path_factory.mktemp("a report, ünd more")
    (out / "index.html").write_text("<title>comparison</title>")
    embedded = lambda texts: np.tile(np.eye(3, dtype=np.float32), (len(texts) // 3 + 1, 1))[: len(texts)]  # noqa: E731
    write_site(data=study / "data", tables=tables, settings={}, out=out, embedded=embedded)
    return out


@pytest.fixture
def page(browser, folder):
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: page.faults.append(dialog.message) or dialog.dismiss())
    page.goto((folder / "latents.html").as_uri())
    page.wait_for_selector("body[data-ready]")
    yield page
    assert page.faults == []
    page.close()


def said(page):
    return page.inner_text("#said")


def test_it_lists_all_latents_a_page_at_a_time(page):
    assert said(page) == "480 latents"
    assert page.locator("#rows tr.first").count() == 50
    page.click("#later")
    page.wait_for_selector("text=51 to 100 of 480")
    assert page.is_enabled("#earlier")


def test_a_search_finds_beginnings_of_words_in_any_order_and_a_latents_number(page):
    page.fill("#query", "sea wha")
    page.wait_for_selector("#said:not(:text('480'))")
    found = {}
    for line in page.locator("#rows tr").all():
        found[line.get_attribute("data-row")] = found.get(line.get_attribute("data-row"), "") + line.inner_text()
    assert found and all("whale" in text and "sea" in text for text in found.values())
    number = page.locator("#rows tr.first a").first.inner_text()
    page.fill("#query", number)
    page.wait_for_selector(f"#rows tr.first a:text-is('{number}')")
    page.fill("#query", "zzz nothing")
    page.wait_for_selector("text=No latent's explanation has words beginning with “zzz nothing”")


def test_sorting_by_a_score_puts_the_largest_first_and_missing_ones_last(page):
    page.select_option("#sort", label="detection of default")
    page.wait_for_selector("#rows tr.first")
    page.wait_for_timeout(200)
    scores = page.locator("#rows tr").filter(has_text="default").locator("td:nth-child(7)").all_inner_texts()
    found = [float(score) for score in scores if score]
    assert len(found) >= 4 and found == sorted(found, reverse=True)
    page.check("#ascending")
    page.wait_for_timeout(200)
    scores = page.locator("#rows tr").filter(has_text="default").locator("td:nth-child(7)").all_inner_texts()
    assert [float(score) for score in scores if score] == sorted(float(score) for score in scores if score)


def test_keys_go_to_a_latent_and_back(page):
    page.keyboard.press("j")
    second = page.locator("#rows tr.first a").nth(1).inner_text()
    page.keyboard.press("Enter")
    page.wait_for_selector(f"h2:has-text('latent {second}')")
    page.keyboard.press("n")
    page.wait_for_selector(f"h2:not(:has-text('latent {second}'))")
    page.keyboard.press("p")
    page.wait_for_selector(f"h2:has-text('latent {second}')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#list:not([hidden])")
    page.keyboard.press("/")
    page.keyboard.type("whale")
    assert page.input_value("#query") == "whale"


def test_a_latents_page_shows_examples_by_decile_tokens_scores_and_provenance(page):
    page.locator("#rows tr.first a").first.click()
    page.wait_for_selector("#latent:not([hidden])")
    deciles = [int(text.split()[0]) for text in page.locator(".window .dim").all_inner_texts() if text[0].isdigit()]
    assert deciles and deciles == sorted(deciles, reverse=True)
    text = page.inner_text("#latent")
    for wanted in ("Examples, the strongest decile first", "Contrasts", "chance 0.5", "null", "Provenance", "Similar explanations"):
        assert wanted.lower() in text.lower()


def test_hostile_text_stands_on_the_page_as_text(page, folder):
    page.goto((folder / "latents.html").as_uri() + f"#q={quote(HOSTILE)}")
    page.wait_for_selector("body[data-ready]")
    for place in range(6):
        page.goto((folder / "latents.html").as_uri() + "#")
        page.locator("#rows tr.first a").nth(place).click()
        page.wait_for_selector("#latent:not([hidden])")
        if page.locator("#latent", has_text='<script>alert("x")</script>').count():
            assert page.locator("#latent script, #latent img, #latent b").count() == 0
            return
    pytest.fail("the study's hostile document stands on none of the pages")


def test_a_wrong_address_says_what_is_not_there(page, folder):
    page.goto((folder / "latents.html").as_uri() + "#latent=topk-1k%2F999999")
    page.wait_for_selector("#said.failed")
    assert "not among those asked for" in said(page)
    page.goto((folder / "latents.html").as_uri() + "#latent=other%2F1&from=-7&sort=99")
    page.wait_for_selector("text=there is no SAE other")


def test_a_chunk_that_was_not_copied_is_told(browser, folder, tmp_path):
    copy = tmp_path / "report"
    shutil.copytree(folder, copy)
    (copy / "data" / "rows" / "0.js").unlink()
    page = browser.new_page()
    page.goto((copy / "latents.html").as_uri())
    page.wait_for_selector("text=data/rows/0.js cannot be read")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_a_narrow_screen(browser, folder, scheme):
    page = browser.new_page(viewport={"width": 360, "height": 700}, color_scheme=scheme)
    page.goto((folder / "latents.html").as_uri())
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#rows tr.first a").first.click()
    page.wait_for_selector("#latent:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
