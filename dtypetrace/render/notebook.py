"""Notebook output: what a trace and a finding show in a cell, and ``t.show()``.

A cell's output is static and small, and is readable as text where a page removes its style. IPython is imported only
where it is already running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from ..parts import attempt, collected
from ..records import Finding, Recording
from ..terminal import seen
from . import cards, html_report, html_text, module_tree
from .layout import columns

if TYPE_CHECKING:
    from ..rules.precision_plan import PrecisionPlan

MOST_BYTES = 60_000
_MOST_FINDINGS = 5
_MOST_MODULES = 80
_WIDE = 110
_BAR = 20
"""Characters of the longest bar."""


def trace_html(recording: Recording, findings: Sequence[Finding]) -> str:
    """Verdict, first findings and folded module tree, under 60 KB: if it is larger, the modules are left
    out."""
    with collected() as failed:
        return _trace_html(recording, findings, failed)


def _trace_html(recording: Recording, findings: Sequence[Finding], failed: Mapping[str, None]) -> str:
    shown_cards = [cards.card(recording, f, f.code) for f in findings[:_MOST_FINDINGS]]
    for modules in (_MOST_MODULES, 0):
        roots = attempt("the module tree", partial(_modules, recording, findings, modules), []) if modules else []
        shown = _fragment(
            verdict=html_report.verdict(recording, findings),
            tone=findings[0].severity if findings else "clean",
            summary=html_report.over(recording),
            cards=shown_cards,
            more=len(findings) - len(shown_cards),
            not_seen=tuple(dict.fromkeys((*recording.not_seen, *failed))),
            modules=roots,
        )
        if len(shown.encode()) < MOST_BYTES:
            break
    return shown


def _modules(recording: Recording, findings: Sequence[Finding], most: int) -> list[module_tree.Module]:
    return module_tree.tree(recording, [(f.code, f) for f in findings], most=most, unfolded=0)


def finding_html(finding: Finding) -> str:
    """One finding by itself, with the program lines that it carries."""
    recording = Recording(sources=finding.sources)
    with collected() as failed:
        one = cards.card(recording, finding, finding.code)
    shown: dict[str, Any] = {"cards": [one], "not_seen": tuple(failed)}
    return _fragment(verdict="", tone=finding.severity, summary="", more=0, modules=[], **shown)


def plan_html(plan: PrecisionPlan) -> str:
    """A precision plan as a heat map: each module's share of the effect, the modules to keep wide first. The bars are
    text, so that they are there where a page removes styles."""
    most = max((c.share for c in plan.ranked), default=0.0)
    kept = {c.module for c in plan.keep}
    ranked = sorted(plan.ranked, key=lambda c: c.module not in kept)
    rows = []
    for c in ranked[:_MOST_MODULES]:
        warmth = round(55 * c.share / most) if most else 0
        bar = "█" * max(1, round(_BAR * c.share / most)) if most and c.share > 0 else ""
        heat = f"text-align:left;background:rgba(200,60,40,.{warmth:02d})"
        cells = (
            f'<td style="text-align:left"><code>{escape(seen(c.module or "(the model)"))}</code></td>',
            f'<td style="text-align:left">{"<b>float32</b>" if c.module in kept else ""}</td>',
            f'<td style="{heat}"><code>{bar}</code> {c.share:.1%}</td>',
            f"<td>{c.infinite:,}</td><td>{c.parameters:,}</td>",
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("module", "keep in", "share of the error", "infinities", "numbers"))
    more = (
        f"<p>{len(ranked) - _MOST_MODULES} more modules with smaller shares</p>" if len(ranked) > _MOST_MODULES else ""
    )
    return (
        f'<div class="dtypetrace"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>{more}'
        f"<pre>{escape(str(plan))}</pre></div>"
    )


def text_html(words: str) -> str:
    """A table of text."""
    return html_text.clean(f"<pre>{escape(words)}</pre>")


def _fragment(**shown: Any) -> str:
    template = html_text.template("notebook.html.j2")
    return html_text.clean(template.render(css=html_text.asset("notebook.css"), source=_source_text, **shown))


def _source_text(window: cards.Window) -> str:
    """A source window as text, with the labels below the text that they are about."""
    lines = []
    for line in window.lines:
        if line is None:
            lines.append("   ⋯")
            continue
        lines.append(f"{line.number:4} {''.join(text for text, _ in line.pieces)}")
        marked = [text for text, is_marked in line.pieces if is_marked]
        for mark in line.marks:
            under = "^" * max(1, columns(marked[0])) if len(marked) == 1 else "^"
            room = mark.column + len(under) + len(mark.label) <= _WIDE
            lines += [f"     {' ' * mark.column}{under} {mark.label if room else ''}".rstrip()]
            lines += [] if room else [f"     {' ' * min(mark.column, _WIDE // 4)}{mark.label}"]
    return "\n".join(lines)


# ---------------------------------------------------------------- the whole report in a cell


def show(html: str) -> None:
    """Displays the whole report below the cell, in a frame that has no access to the notebook or the network.

    Raises RuntimeError outside a notebook.
    """
    try:
        from IPython import get_ipython
        from IPython.display import HTML, display
    except ImportError:
        get_ipython = lambda: None
    if get_ipython() is None:
        raise RuntimeError("show() needs a notebook; write the report to a file with report('out.html') instead")
    # the division keeps IPython from advising its own IFrame, which cannot show a text
    display(HTML(
        f'<div><iframe sandbox="allow-scripts" title="dtypetrace report" srcdoc="{escape(html)}" '
        'style="width:100%;height:80vh;border:1px solid #8888;border-radius:8px"></iframe></div>'
    ))  # fmt: skip
