"""The timeline in a browser: what pointing at them says, and where a click leads."""

from __future__ import annotations

import pytest
import torch
from browser import Visit

import dtypetrace
from dtypetrace.compare.differences import compare
from dtypetrace.render import diff_page, html_report

pytestmark = pytest.mark.slow


def op_numbers(v: Visit) -> list[int]:
    return v.page.eval_on_selector_all("#ops tbody tr", "rows => rows.map(row => Number(row.id.slice(3)))")


def test_pointing_at_the_timeline_reads_the_op_and_a_click_lists_those_there(browser, reports):
    with Visit(browser, reports["many"]) as v:
        strip = v.page.locator("svg.strip[data-phase=backward]")
        strip.scroll_into_view_if_needed()
        box = strip.bounding_box()
        strip.hover(position={"x": box["width"] * 0.6, "y": 10})
        reading = v.page.locator("#reading").inner_text()
        assert reading.startswith(("op 12,0", "op 11,9"))
        assert "backward" in reading and "/p/train.py:" in reading and "model.layers." in reading
        strip.click(position={"x": box["width"] * 0.6, "y": 10})
        shown = op_numbers(v)
        assert len(shown) == 50 and "of 100" in v.page.locator("#ops [role=status]").inner_text()
        assert shown[0] <= int(reading.split(":")[0][3:].replace(",", "")) < shown[0] + 100
        v.quiet()


def test_a_part_of_the_timeline_is_widened_by_a_drag_the_wheel_and_keys(browser, reports):
    with Visit(browser, reports["many"]) as v:
        page = v.page
        strip = page.locator("svg.strip[data-phase=backward]")
        strip.scroll_into_view_if_needed()
        box = strip.bounding_box()
        shown = lambda: [float(n) for n in strip.get_attribute("viewBox").split()][0:3:2]
        whole = shown()
        at = lambda share: (box["x"] + share * box["width"], box["y"] + 10)
        page.mouse.move(*at(0.5))
        page.mouse.down()
        page.mouse.move(*at(0.75), steps=4)
        page.mouse.up()
        assert shown() == pytest.approx([0.5 * whole[1], 0.25 * whole[1]], rel=0.05)
        page.mouse.move(*at(0.5))
        reading = page.locator("#reading").inner_text()
        assert reading.startswith(("op 12,4", "op 12,5")), "the op below the pointer"
        page.mouse.click(*at(0.5))
        assert int(reading.split(":")[0][3:].replace(",", "")) in range(op_numbers(v)[0], op_numbers(v)[0] + 100)

        strip.scroll_into_view_if_needed()
        box = strip.bounding_box()
        page.mouse.move(*at(0.5))
        page.keyboard.down("Control")
        page.mouse.wheel(0, -100)
        page.keyboard.up("Control")
        page.wait_for_function("Number(document.querySelector('svg.strip').viewBox.baseVal.width) < 45")
        page.focus("#scrub")
        narrow = shown()[1]
        page.keyboard.press("-")
        assert shown()[1] == pytest.approx(2 * narrow)
        start, span = shown()
        page.keyboard.press("Shift+ArrowRight")
        assert shown() == pytest.approx([start + span / 8, span])
        page.click("#axis-whole")
        assert shown() == whole and page.locator("#axis-whole").is_disabled()
        v.quiet()


def test_the_timeline_is_read_by_keys(browser, reports):
    with Visit(browser, reports["demo"]) as v:
        v.page.focus("#scrub")
        first = v.page.locator("#reading").inner_text()
        v.page.keyboard.press("ArrowRight")
        assert first.startswith("op 0: ") and v.page.locator("#reading").inner_text().startswith("op 1: ")
        assert v.page.locator("#scrub").get_attribute("aria-valuetext").startswith("op 1: ")
        v.page.keyboard.press("Enter")
        assert 1 in op_numbers(v) and v.page.input_value("#ops input").startswith("ops:")
        v.page.fill("#ops input", "")
        v.page.click("#list-here")
        assert 1 in op_numbers(v) and v.page.input_value("#ops input").startswith("ops:")
        lanes = v.page.eval_on_selector_all("svg.strip[data-phase]", "lanes => lanes.map(lane => lane.dataset.phase)")
        v.page.fill("#ops input", "kaiming_uniform_")
        phase = v.page.locator("#ops th").all_inner_texts().index("phase")
        cells = f"rows => rows.map(row => row.cells[{phase}].textContent)"
        shown = v.page.eval_on_selector_all("#ops tbody tr", cells)
        assert lanes[0] == "init" and set(shown) == {"init"}, "the table has the timeline's words"


def test_the_collision_is_marked_and_leads_to_its_finding(browser, reports):
    with Visit(browser, reports["demo"], width=400) as v:
        flag = v.page.locator(".pin")
        band = v.page.locator(".pins").bounding_box()
        box = flag.bounding_box()
        assert band["x"] <= box["x"] and box["x"] + box["width"] <= band["x"] + band["width"] + 2
        assert abs(box["x"] + box["width"] - band["x"] - band["width"]) < 4, "it ended the run"
        flag.click()
        assert v.page.evaluate("location.hash") == "#DT101-1"
        assert v.page.locator("svg.live").is_visible()


def test_two_runs_are_on_one_axis(browser, tmp_path):
    """What one of them computes otherwise has the same place in the lanes of both, and its line says both dtypes."""

    def traced(wide: bool):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)).bfloat16()
        with dtypetrace.trace(net) as t:
            out = net(torch.ones(2, 4, dtype=torch.bfloat16))
            (out.float() if wide else out).sigmoid().sum().backward()
        return t.recording

    pair = traced(False), traced(True)
    file = tmp_path / "diff.html"
    file.write_text(html_report.rendered(diff_page.page(pair, compare(*pair), ("one", "other"))), "utf-8")
    with Visit(browser, file) as v:
        lanes = v.page.eval_on_selector_all("svg.strip", "lanes => lanes.map(lane => lane.ariaLabel.split(':')[0])")
        assert {"forward a", "forward b", "backward a", "backward b"} <= set(lanes)
        assert v.page.locator("#differences article").count() > 0
        v.page.fill("#ops input", "sigmoid")
        (number, *_) = op_numbers(v)
        read = "row => { scrub.value = row; scrub.dispatchEvent(new Event('input')); return reading.textContent; }"
        assert "a: bfloat16 → bfloat16 · b: float32 → float32" in v.page.evaluate(read, number)
        v.page.set_viewport_size({"width": 420, "height": 900})
        assert v.page.evaluate("document.documentElement.scrollWidth") <= 420
        v.quiet()
