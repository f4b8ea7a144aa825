"""The first screen in a browser: the action, its diff, the editors; the search and the links to one thing."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

import pytest
import recordings
from browser import Visit

from dtypetrace.records import Op, Precision, Recording
from dtypetrace.render import html_report

pytestmark = pytest.mark.slow


def test_the_action_and_its_diff_are_on_the_first_screen(browser, reports):
    for width, height in ((1280, 720), (400, 800)):
        with Visit(browser, reports["mask"], width=width, height=height) as v:
            assert "makes float32" in v.page.locator("h1").inner_text()
            diff = v.page.locator("#verdict .diff")
            box = diff.bounding_box()
            assert box["y"] + box["height"] < height and "dtype=torch.float16" in diff.inner_text()
            lines = diff.locator("pre")
            assert lines.evaluate("pre => pre.scrollWidth <= pre.clientWidth"), "what is added is not out of view"
            assert "RuntimeError" in v.page.locator("#verdict").inner_text()
            v.quiet()


def test_a_line_opens_in_the_chosen_editor_which_is_remembered(browser, reports):
    with Visit(browser, reports["mask"]) as v:
        link = v.page.locator("#verdict a.button").first
        href = unquote(link.get_attribute("href"))
        assert href.startswith("vscode://file/") and ".py:4:" in href
        line, column = href.rsplit(":", 2)[1:]
        assert v.page.locator("#verdict a.button").first.get_attribute("data-line") == line and column.isdigit()
        v.page.select_option("#editor", "PyCharm")
        assert link.get_attribute("href").startswith("pycharm://open?file=/") and f"line={line}" in link.get_attribute(
            "href"
        )
        v.page.reload()
        v.page.wait_for_selector("html[data-ready]", state="attached")
        assert link.get_attribute("href").startswith("pycharm://")
        assert v.page.locator("a.no[href^='pycharm:']").count() > 1, "labelled lines of the source open too"
        v.quiet()


def test_changes_that_no_diff_shows_are_a_list_with_their_code(browser, tmp_path):
    """A finding about training: each line to type by itself, its code set apart, before anything else is said."""
    recording, (f,) = recordings.many(20, findings=1)
    lines = ("before opt is made (train.py:3): add `scaler = GradScaler()`", "train.py:5: replace `a` with `b`")
    changed = replace(f, fix=replace(f.fix, edits=(), why="keep the weights in float32", lines=lines), exception=None)
    (tmp_path / "steps.html").write_text(html_report.render(recording, (changed,)), "utf-8")
    with Visit(browser, tmp_path / "steps.html", width=400, height=800) as v:
        assert v.page.locator("h1").inner_text() == "Keep the weights in float32"
        steps = v.page.locator("#verdict ol.steps li")
        assert steps.all_inner_texts() == [line.replace("`", "") for line in lines]
        assert steps.locator("code").all_inner_texts() == [
            "scaler = GradScaler()",
            "a",
            "b",
        ]
        assert steps.last.bounding_box()["y"] < 500
        shown = v.page.locator("#verdict .diff")
        assert "train.py:" in shown.inner_text() and not shown.locator(".copy").is_visible(), "the line as it is now"
        assert shown.locator("a.button").get_attribute("href").startswith("vscode:")
        assert v.page.locator("ol.steps").count() == 1, "the card leads to the list and does not repeat it"
        v.quiet()


def test_the_first_card_leads_to_the_change_and_does_not_repeat_it(browser, reports):
    with Visit(browser, reports["mask"]) as v:
        assert v.page.locator(".diff").count() == 1
        v.page.locator("article .fix a").first.click()
        assert 0 <= v.page.locator("#verdict .diff").bounding_box()["y"] < 900
        v.quiet()


def search(v: Visit, text: str) -> list[str]:
    v.page.keyboard.press("/")
    v.page.fill("#search", text)
    return v.page.locator("#results li").all_inner_texts()


def test_one_search_finds_findings_modules_ops_and_lines(browser, reports):
    with Visit(browser, reports["demo"]) as v:
        for text, kind in (
            ("float16 weights", "finding"), ("time_embedding", "module"), ("kaiming", "op"), ("unet_mask.py:60", "line")
        ):  # fmt: skip
            assert kind in [found.split()[0] for found in search(v, text)], text
        assert search(v, "RuntimeError")[0].startswith("finding"), "all that a finding shows"
        assert search(v, "fp16")[-1] == search(v, "float16")[-1]
        assert search(v, "no such thing") == ["nothing found"]
        for text, kind in (("float16", "table"), ("parameters", "receipt")):  # a dtype, a part of the run
            assert kind in [found.split()[0] for found in search(v, text)], text
        search(v, "float16")
        v.page.locator("#results li", has_text="Casts").click()
        assert v.page.input_value("#casts input") == "float16"
        search(v, "linear_1")
        options = v.page.locator("#results li")
        module = next(n for n, text in enumerate(options.all_inner_texts()) if text.startswith("module"))
        for _ in range(module + 1):
            v.page.keyboard.press("ArrowDown")
        assert v.page.locator("#search").get_attribute("aria-activedescendant") == f"result-{module}"
        v.page.keyboard.press("Enter")
        assert v.page.locator(".tree .row.current").inner_text().startswith("linear_1")
        assert unquote(v.page.evaluate("location.hash")) == "#module=unet.time_embedding.linear_1"
        search(v, "unet_mask.py:60")
        v.page.keyboard.press("Enter")
        assert v.page.input_value("#ops input").startswith("line:") and v.page.locator("#ops tbody tr").count() >= 1
        search(v, "float16 weights")
        v.page.keyboard.press("Escape")
        assert not v.page.locator("#results").is_visible()
        search(v, "float16 weights")
        v.page.locator("#results li").first.click()
        assert v.page.evaluate("location.hash") == "#DT101-1" and not v.page.locator("#results").is_visible()
        v.quiet()


def test_what_is_pressed_has_a_link_to_pass_on(browser, reports):
    """The paragraph marks of a finding and of an op, and the line of a module, put their links into the address bar."""
    with Visit(browser, reports["demo"]) as v:
        address = lambda: unquote(v.page.evaluate("location.hash"))
        v.page.locator("article.card .anchor").first.click()
        assert address() == "#DT101-1"
        v.page.locator(".tree .row", has_text="linear_1").first.click()
        assert address() == "#module=unet.time_embedding.linear_1"
        v.page.locator("#op-3 a.to").click()
        v.page.wait_for_selector("#op-3.current")
        assert address() == "#op-3"
        v.quiet()


@pytest.mark.parametrize("name", ["clean", "kinds"])
def test_the_names_of_all_sections_fit_beside_the_search(browser, reports, name):
    with Visit(browser, reports[name]) as v:
        nav = v.page.locator("header nav")
        assert nav.evaluate("nav => nav.scrollWidth <= nav.clientWidth"), nav.inner_text()
        for link in nav.locator("a").all():
            target = link.get_attribute("href")
            link.click()
            assert 0 <= v.page.locator(target).bounding_box()["y"] < 900, target


def test_an_op_and_a_module_have_links(browser, reports):
    with Visit(browser, reports["many"], fragment="#op-12345") as v:
        row = v.page.locator("#op-12345")
        assert "current" in row.get_attribute("class") and 0 < row.bounding_box()["y"] < 900
        v.page.evaluate("location.hash = '#op-7'")
        v.page.wait_for_selector("#op-7.current")
        assert v.page.locator("#op-8 a.to").get_attribute("href") == "#op-8"
    with Visit(browser, reports["demo"], fragment="#module=unet.time_embedding.linear_1") as v:
        row = v.page.locator(".tree .row.current")
        assert row.inner_text().startswith("linear_1") and 0 < row.bounding_box()["y"] < 900


@pytest.mark.parametrize("fragment", ["#op-99999999", "#op-x", "#module=no.such", "#%E0%A4%A", "#"])
def test_a_link_that_leads_nowhere_does_nothing(browser, reports, fragment):
    with Visit(browser, reports["clean"], fragment=fragment) as v:
        v.quiet()


# ---------------------------------------------------------------- the module tree as a heat map


def test_modules_have_bars_by_dtype_with_the_names_beside_them(browser, reports):
    with Visit(browser, reports["demo"]) as v:
        row = v.page.locator(".tree .row", has_text="unet").first
        assert "float16 794 k" in " ".join(row.inner_text().split())
        longest = row.locator("s").first.bounding_box()["width"]
        small = v.page.locator(".tree .row", has_text="conv_norm_out").locator("s").first
        assert 2 < small.bounding_box()["width"] < longest / 4
        assert small.evaluate("bar => getComputedStyle(bar.firstChild).backgroundColor") != "rgba(0, 0, 0, 0)"
        assert "float32 → refused" in v.page.locator(".tree .row", has_text="linear_1").inner_text().replace("\n", " ")


def test_with_a_reference_modules_have_their_error_the_larger_the_warmer(browser, tmp_path):
    def measured(op: int, introduced: float) -> Precision:
        zeros = dict.fromkeys(("total", "lost", "lost_in_all", "flushed"), 0.0)
        return Precision(op, 1, 10, 1.0, introduced, infinite=0, spoiled=0, lost_calls=0, **zeros)

    ops = tuple(Op("mul", "mul.Tensor", "forward", f"net.{name}", 0, (), ("float16",), 1, shape=(10,)) for name in "ab")
    recording = Recording(modules=("net", "net.a", "net.b"), ops=ops, precisions=(measured(0, 1e-1), measured(1, 1e-5)))
    (tmp_path / "heat.html").write_text(html_report.render(recording, ()), "utf-8")
    with Visit(browser, tmp_path / "heat.html") as v:
        v.page.click("#unfold")
        cells = v.page.locator(".tree li .heat")
        assert cells.all_inner_texts() == ["1.0e-01", "1.0e-01", "1.0e-05"], "a module has its worst op's"
        warmth = "cell => Number(getComputedStyle(cell).backgroundColor.match(/[\\d.]+\\)$/)[0].slice(0, -1))"
        _, warm, cold = (cell.evaluate(warmth) for cell in cells.all())
        assert warm > 2 * cold > 0


def test_a_run_that_was_watched_in_part_says_so_and_not_that_all_was_seen():
    whole = Recording(meta={"steps": 20, "ops": 100})
    part = Recording(
        meta={"steps": 20, "ops": 100, "watched": "13 of 20 steps: 1-12, 17", "watched_steps": 13, "all_steps": 20}
    )
    assert "saw every op" in html_report.render(whole, ())
    page = html_report.render(part, ())
    assert "saw every op" not in page
    assert "20 steps, 13 of them watched" in page and "watched 13 of 20 steps: 1-12, 17" in page
