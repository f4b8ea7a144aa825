"""The HTML report in a real browser: it opens from disk in silence, and what can be pressed does what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import recordings
from browser import Visit, missing
from samples import one_in

from dtypetrace.render import html_report

KILO = 1000
MODES = [("dark", 400), ("dark", 1280), ("light", 1280), ("light", 400)]

pytestmark = pytest.mark.slow


# ---------------------------------------------------------------- opening


def test_sizes(reports):
    assert reports["sd15"].stat().st_size < 500 * KILO
    assert reports["many"].stat().st_size < 1000 * KILO
    assert reports["clean"].stat().st_size < 150 * KILO


@pytest.mark.parametrize("name", ["demo", "clean", "sd15", "mask", "many", "kinds"])
def test_it_opens_without_errors_requests_nothing_and_nothing_is_wider_than_the_page(browser, reports, name):
    """Wide things scroll in boxes of their own. With DTYPETRACE_SHOTS=folder what it looks like is kept there."""
    with Visit(browser, reports[name], width=400, color_scheme="dark") as v:
        assert v.page.locator("h1").is_visible()
        for scheme, width in MODES:
            v.page.emulate_media(color_scheme=scheme)
            v.page.set_viewport_size({"width": width, "height": 900})
            assert v.page.evaluate("document.documentElement.scrollWidth") <= width
            if folder := os.environ.get("DTYPETRACE_SHOTS"):
                v.page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png", full_page=True)
        v.quiet()


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("demo", "light"),
        ("kinds", "dark"),
        *(
            pytest.param(*page, marks=pytest.mark.exhaustive)
            for page in (
                ("demo", "dark"), ("clean", "dark"), ("sd15", "light"), ("mask", "light"), ("many", "light"),
                ("many", "dark"),
            )
        ),
    ],
)  # fmt: skip
def test_axe_finds_nothing(browser, reports, name, scheme):
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        missing("axe-playwright-python is not installed")
    with Visit(browser, reports[name], color_scheme=scheme) as v:
        found = Axe().run(v.page).response
        assert len(found["passes"]) > 10
        wrong = found["violations"]
        assert not wrong, [(x["id"], [n["html"][:200] + n["failureSummary"] for n in x["nodes"][:3]]) for x in wrong]


TIMED = """
new MutationObserver((_, observer) => {
  const title = document.querySelector("article.card h3");
  if (title) { title.setAttribute("elementtiming", "finding"); observer.disconnect(); }
}).observe(document, {childList: true, subtree: true});
"""


def test_the_first_finding_is_on_screen_before_the_tables_are_built(browser, reports):
    """The element timing shows when the browser first painted the title of the first finding."""

    def painted_first() -> bool:
        with Visit(browser, reports["many"], script=TIMED) as v:
            assert v.page.locator("article.card").first.bounding_box()["y"] < 900
            painted = v.page.evaluate(
                "new Promise(tell => new PerformanceObserver(seen => tell(seen.getEntries()[0].startTime)).observe({type: 'element', buffered: true}))"
            )
            return painted < v.page.evaluate("performance.getEntriesByName('tables')[0].startTime")

    assert any(painted_first() for _ in range(4))  # a busy machine shows late what was painted


def test_what_is_built_does_not_grow_with_the_rows(browser, reports):
    """Loading takes no longer than reading the rows: of a table one page is built."""

    def built(name: str) -> int:
        with Visit(browser, reports[name]) as v:
            return v.page.evaluate("document.querySelectorAll('table *').length")

    assert 0 < built("many") <= 1.5 * built("kinds")


# ---------------------------------------------------------------- without the script


def test_without_script_findings_and_source_are_there(browser, reports):
    with Visit(browser, reports["mask"], java_script_enabled=False, ready=False) as v:
        card = v.page.locator("article.card").first
        assert card.locator(".source mark").first.is_visible() and "float32 is born here" in card.inner_text()
        assert v.page.locator(".diff").is_visible()
        assert v.page.locator("svg.strip").first.is_visible() and v.page.locator(".tree").is_visible()
        assert not v.page.locator("button").first.is_visible() and not v.page.locator("input").first.is_visible()
        assert "built by the page's script" in v.page.locator("main").inner_text()
        v.quiet()


# ---------------------------------------------------------------- what can be pressed


def rows(v: Visit, table: str) -> list[dict[str, str]]:
    names = v.page.locator(f"#{table} th").all_inner_texts()
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    return [dict(zip(names, row)) for row in v.page.eval_on_selector_all(f"#{table} tbody tr", cells)]


def test_a_table_filters(browser, reports):
    with Visit(browser, reports["many"]) as v:
        v.page.fill("#ops input", "layer_norm backward")
        shown = rows(v, "ops")
        assert len(shown) == 50 and {(r["op"], r["phase"]) for r in shown} == {("layer_norm", "backward")}
        v.page.fill("#ops input", "no such thing")
        assert rows(v, "ops") == [] and v.page.locator("#ops [role=status]").inner_text() == "none found"
        v.page.fill("#ops input", "model.layers.7.norm.part_5")
        assert {r["module"] for r in rows(v, "ops")} == {"model.layers.7.norm.part_5"}


def test_a_table_is_filtered_by_short_names_and_marks_its_dtypes(browser, reports):
    with Visit(browser, reports["demo"]) as v:
        v.page.fill("#ops input", "fp16")
        short = rows(v, "ops")
        marked = set(v.page.locator("#ops tbody mark").all_inner_texts())
        v.page.fill("#ops input", "float16")
        assert short and short == rows(v, "ops") and marked == {"float16"}
        v.page.fill("#ops input", "half")
        assert rows(v, "ops"), "a short name is a word, too"


def test_a_table_sorts_and_says_so(browser, reports):
    with Visit(browser, reports["many"]) as v:
        heads = v.page.locator("#ops th")
        names = heads.all_inner_texts()
        calls = names.index("calls")
        assert v.page.locator("#ops th[aria-sort]").count() == 0
        heads.nth(calls).locator("button").click()
        assert heads.nth(calls).get_attribute("aria-sort") == "descending" and {r["calls"] for r in rows(v, "ops")} == {
            "13"
        }
        heads.nth(calls).locator("button").click()
        assert heads.nth(calls).get_attribute("aria-sort") == "ascending" and {r["calls"] for r in rows(v, "ops")} == {
            "1"
        }
        for name in ("op", "phase", "module", "your line"):
            column = names.index(name)
            heads.nth(column).locator("button").click()
            shown = [r[name] for r in rows(v, "ops")]
            lines = [(f, int(n)) for f, _, n in (s.rpartition(":") for s in shown)] if name == "your line" else shown
            assert lines == sorted(lines) and heads.nth(column).get_attribute("aria-sort") == "ascending"
            assert v.page.locator("#ops th[aria-sort]").count() == 1


def test_the_rows_are_those_of_the_recording(browser, reports):
    """What is decoded in the browser is what was written: every row of every page, against the frame's source."""
    from dtypetrace.render import listings

    recording, _ = recordings.many(20_000)
    with Visit(browser, reports["many"]) as v:
        shown = []
        for _ in range(3):
            shown += rows(v, "ops")
            v.page.locator("#ops button", has_text="next").click()
        assert "151–200 of 20,000" in v.page.locator("#ops [role=status]").inner_text()
        v.page.locator("#ops button", has_text="previous").click()
        assert "101–150 of 20,000" in v.page.locator("#ops [role=status]").inner_text()
    for reported, row in zip(shown, listings.ops(recording)):
        assert (reported["op"], reported["phase"]) == (row.op, row.phase)
        assert (reported["module"], reported["calls"]) == (row.module, str(row.count))
        assert reported["your line"] == f"/p/train.py:{row.place.user_frame.line}"
        assert reported["library line"].endswith(f"{row.place.file.rpartition('/')[2]}:{row.place.line}")


def test_the_tree_folds_and_filters(browser, reports):
    with Visit(browser, reports["sd15"]) as v:
        visible = lambda: v.page.locator(".tree li:visible").count()
        assert visible() == 1, "no dtype changes in it, so it is folded"
        v.page.locator(".tree summary").first.click()
        assert visible() > 5
        v.page.fill("#tree-filter", "attn1 to_q")
        shown = v.page.locator(".tree .row:visible > span:first-child").all_inner_texts()
        assert any("to_q" in s for s in shown) and not any("to_k" in s for s in shown)
        v.page.fill("#tree-filter", "down_blocks.2.resnets")
        assert "found" in v.page.locator("#tree-count").inner_text() and v.page.locator(".tree li:visible").count() > 2
        v.page.fill("#tree-filter", "")
        assert v.page.locator("#tree-count").inner_text() == "" and 5 < visible() < 50
        v.page.click("#unfold")
        assert visible() > 50
        v.page.click("#unfold")
        assert visible() == 1


def test_the_map_widens_a_module_and_leads_to_its_line(browser, reports):
    with Visit(browser, reports["sd15"]) as v:
        page = v.page
        cell = page.locator("#map button[title^='unet.up_blocks,']")
        width = lambda: cell.bounding_box()["width"]
        small, whole = width(), page.locator("#map").bounding_box()["width"]
        cell.click()
        assert (
            small < 0.8 * whole < width() and not page.locator("#map button[title^='unet.down_blocks,']").is_visible()
        )
        cell.press("Escape")
        page.click("#map-out")
        assert width() == pytest.approx(small, abs=2) and page.locator("#map-out").is_disabled()

        assert page.locator("#map button[tabindex='0']").count() == 1, "Tab stops once"
        cell.press("ArrowUp")
        assert page.evaluate("document.activeElement.title").startswith("unet,")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.title").startswith("unet.")

        cell.click()
        cell.click()
        assert "up_blocks" in page.locator(".tree .row.current").inner_text()
        v.quiet()


def test_the_path_of_a_finding_is_drawn_on_the_map(browser, reports):
    with Visit(browser, reports["demo"], width=420) as v:
        page = v.page
        points = lambda: page.locator("#map > svg > circle").count()
        assert points() == 3 and page.locator("#map > svg").count() == 1
        assert page.locator("#map-path").inner_text().split("\n")[-1] == (
            "Born outside the modules → unet → unet.time_embedding.linear_1"
        )
        end, cell = (
            page.locator("#map > svg > circle").last,
            page.locator("#map button[title$='linear_1, has a finding']"),
        )
        inside = lambda: (
            cell.bounding_box()["x"] < end.bounding_box()["x"] < cell.bounding_box()["x"] + cell.bounding_box()["width"]
        )
        assert inside()
        cell.click()
        assert inside() and cell.bounding_box()["width"] > 300, "it moves with what is widened"
        page.locator("#map-path button").click()
        assert page.locator("#map-path [aria-pressed=true]").inner_text() == "DT101-1" and points() == 3
        v.quiet()
    with Visit(browser, reports["demo"], java_script_enabled=False, ready=False) as v:
        assert "DT101 passes" in v.page.locator(".tree .badge").all_inner_texts()


def test_only_the_modules_with_findings(browser, reports):
    with Visit(browser, reports["demo"]) as v:
        v.page.check("#only-found")
        names = [
            s.partition(" ")[0].strip()
            for s in v.page.locator(".tree li .row:visible > span:first-child").all_inner_texts()
        ]
        assert names == ["unet", "time_embedding", "linear_1"]


def test_the_tree_is_walked_by_keys(browser, reports):
    with Visit(browser, reports["demo"]) as v:
        press = v.page.keyboard.press
        at = lambda: v.page.evaluate(
            "[document.activeElement.getAttribute('role'), document.activeElement.querySelector('span').innerText.split(' ')[0].trim()]"
        )
        assert v.page.locator(".tree [role=treeitem][tabindex='0']").count() == 1, "Tab stops once"
        v.page.focus(".tree [role=treeitem][tabindex='0']")
        assert at() == ["treeitem", "unet"]
        expanded = lambda: v.page.evaluate("document.activeElement.getAttribute('aria-expanded')")
        assert expanded() == "true"
        press("ArrowRight")
        inside = at()
        assert inside[1] != "unet"
        press("ArrowLeft")
        assert at()[1] == "unet"
        press("ArrowLeft")
        assert expanded() == "false" and v.page.locator(".tree li:visible").count() == 1
        press("ArrowDown")
        assert at()[1] == "unet", "there is no line below"
        press("ArrowRight")
        press("ArrowDown")
        assert at() == inside
        press("End")
        last = at()
        press("ArrowUp")
        assert at() != last
        press("Home")
        assert at()[1] == "unet"
        v.page.fill("#tree-filter", "linear_1")
        v.page.focus(".tree [role=treeitem][tabindex='0']")
        press("End")
        assert at()[1] == "linear_1"
        press("Enter")
        assert v.page.evaluate("location.hash") == "#DT101-1", "Enter leads to its finding"
        v.quiet()
    with Visit(browser, reports["clean"]) as v:
        v.page.focus(".tree [role=treeitem][tabindex='0']")
        v.page.keyboard.press("Enter")
        assert v.page.input_value("#ops input") == "module:model", "and without one to its ops"


def test_the_tree_says_how_often_a_module_was_called(browser, reports):
    with Visit(browser, reports["clean"]) as v:
        assert v.page.locator(".tree li .row .times").first.inner_text() == "2"
        lanes = v.page.locator("[data-ran]")
        assert v.page.locator(".of-step h3").all_inner_texts() == ["step 1", "step 2"]
        v.page.focus("#scrub")
        read = lambda op: v.page.evaluate(
            "row => { scrub.value = row; scrub.dispatchEvent(new Event('input')); return reading.textContent; }", op
        )
        assert read(0).endswith("init"), "what makes the model belongs to no step"
        both = lanes.last.get_attribute("data-ran").partition("-")[0]
        assert read(int(both)).endswith("step 1, step 2")


def test_a_module_leads_to_its_ops(browser, reports):
    with Visit(browser, reports["sd15"]) as v:
        v.page.locator(".tree li .row>span:last-child").first.click()
        assert v.page.input_value("#ops input") == "module:unet"
        shown = [r["module"] for r in rows(v, "ops")]
        assert len(shown) == 50 and all(name == "unet" or name.startswith("unet.") for name in shown)


def test_an_open_module_names_its_findings_once(browser, reports):
    """Closed, a row counts its findings, because no link may stand in what folds it; open, the links are below it."""
    with Visit(browser, reports["kinds"]) as v:
        folded = v.page.locator(".tree details:has(> summary .badge)").first
        badge = folded.locator("> summary .badge").first
        assert folded.locator("> .into").is_visible() and not badge.is_visible()
        folded.locator("> summary").click()
        assert badge.is_visible() and not folded.locator("> .into").is_visible()


def test_a_badge_leads_to_its_finding(browser, reports):
    with Visit(browser, reports["demo"]) as v:
        v.page.locator(".tree a.badge:visible").first.click()
        assert v.page.evaluate("location.hash") == "#DT101-1"
        v.page.wait_for_selector("#DT101-1.current")  # the page hears of the new fragment a moment later
        assert 0 <= v.page.locator("#DT101-1").bounding_box()["y"] < 200


def test_an_anchor_opens_its_finding(browser, reports):
    with Visit(browser, reports["kinds"], fragment="#DT101-9") as v:
        assert v.page.locator("#DT101-9 > details").get_attribute("open") is not None
        assert 0 <= v.page.locator("#DT101-9").bounding_box()["y"] < 200


def test_the_keys(browser, reports):
    with Visit(browser, reports["kinds"]) as v:
        current = lambda: v.page.eval_on_selector_all("article.current", "cards => cards.map(card => card.id)")
        press = v.page.keyboard.press
        press("j")
        assert current() == ["DT101-1"]
        press("j")
        press("j")
        assert current() == ["DT101-2"], "the findings without a place stand between"
        press("k")
        assert current() == ["DT401-1"]
        is_open = lambda: v.page.locator("#DT401-1 > details").get_attribute("open") is not None
        assert is_open()
        press("o")
        assert not is_open()
        press("o")
        assert is_open()
        press("?")
        assert v.page.locator("#help").is_visible()
        press("Escape")
        assert not v.page.locator("#help").is_visible()
        press("/")
        assert v.page.evaluate("document.activeElement.type") == "search"
        v.page.keyboard.type("jjt?")
        assert v.page.evaluate("document.activeElement.value") == "jjt?" and current() == ["DT401-1"]
        press("Escape")
        assert v.page.evaluate("document.activeElement.type") != "search"
        v.quiet()


def test_the_theme_turns_and_is_remembered(browser, reports):
    paint = "getComputedStyle(document.body).backgroundColor"
    with Visit(browser, reports["demo"], color_scheme="light") as v:
        light = v.page.evaluate(paint)
        v.page.keyboard.press("t")
        dark = v.page.evaluate(paint)
        assert dark != light
        v.page.reload()
        assert v.page.evaluate(paint) == dark
        v.page.click("#theme")
        assert v.page.evaluate(paint) == light
    with Visit(browser, reports["demo"], color_scheme="dark") as v:
        assert v.page.evaluate(paint) == dark


def test_the_diff_is_copied(browser, reports):
    with Visit(browser, reports["mask"], permissions=["clipboard-read"]) as v:
        v.page.locator(".copy").first.click()
        assert v.page.locator(".copy").first.inner_text() == "copied"
        assert "-mask = torch.ones(2, 1)\n+mask = torch.ones(2, 1, dtype=torch.float16)\n" in v.page.evaluate(
            "navigator.clipboard.readText()"
        )


def test_printing_opens_what_is_folded(browser, reports):
    with Visit(browser, reports["kinds"]) as v:
        v.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        v.page.emulate_media(media="print")
        assert v.page.locator("article.card details:not([open])").count() == 0
        assert not v.page.locator("header").is_visible()


def test_it_works_in_the_frame_of_a_notebook(browser, reports, tmp_path):
    """As `t.show()` displays it: sandboxed, so without storage and without a way out."""
    from html import escape

    file = tmp_path / "frame.html"
    report = escape(reports["demo"].read_text("utf-8"))
    file.write_text(
        f'<!doctype html><iframe sandbox="allow-scripts" style="width:1200px;height:700px" srcdoc="{report}"></iframe>',
        "utf-8",
    )
    with Visit(browser, file, ready=False) as v:
        frame = v.page.frame_locator("iframe")
        frame.locator("#ops tbody tr").first.wait_for(state="attached")
        frame.locator("#theme").click()
        assert frame.locator("html").get_attribute("data-theme") in ("light", "dark")
        frame.locator(".tree a.badge:visible").first.click()
        assert "current" in frame.locator("#DT101-1").get_attribute("class")
        assert v.reported == [] and {url.partition("#")[0] for url in v.asked} <= {v.url, "about:srcdoc"}


# ---------------------------------------------------------------- hostile strings


@pytest.mark.parametrize("text", one_in(3, recordings.HOSTILE, lambda t: ascii(t)[:24]))
def test_hostile_strings_change_nothing(browser, tmp_path, text):
    file = tmp_path / "hostile.html"
    file.write_text(html_report.render(*recordings.hostile(text)), "utf-8")
    with Visit(browser, file) as v:
        v.quiet()
        assert v.page.evaluate("typeof hit") == "undefined"
        assert v.page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert v.page.locator("article.card").count() == 1
        assert v.page.locator("footer").is_visible(), "the page goes on to its end"
        names = {r["module"] for r in rows(v, "ops")}
        assert len(names) > 1
        v.page.fill("#tree-filter", "model")
        v.page.keyboard.press("Escape")
        v.page.keyboard.press("j")
        assert v.page.locator("article.current").count() == 1
        v.quiet()


def test_what_to_do_in_several_lines_is_a_list_that_covers_nothing(browser, reports, tmp_path):
    """The lines of the first screen stand below each other, and nothing lies on top of them."""
    from dtypetrace.render.html_text import asset

    page = reports["mask"].read_text("utf-8")
    assert "ol.steps" in asset("report.css") or ".steps" in asset("report.css")
    listed = '<ol class="steps"><li>first line</li><li>second line</li></ol><p id="below">below</p>'
    (tmp_path / "steps.html").write_text(page.replace("</h1>", "</h1>" + listed, 1))
    with Visit(browser, tmp_path / "steps.html", width=400) as v:
        tops = [
            v.page.locator(where).bounding_box()["y"]
            for where in (".steps li >> nth=0", ".steps li >> nth=1", "#below")
        ]
        assert tops[0] + 10 < tops[1] < tops[2] - 10
