"""A real Chromium for the tests of the HTML report, driven by Playwright.

It is the one on the PATH (Debian's `chromium`), else the one that `playwright install chromium` brought. Where there is
none the tests are skipped, but fail where CI is set: there, a skipped check would look like one that passed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# no look-ups of its own, and the sandbox needs another user than root
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{what}; `make test` installs it", pytrace=False)
    pytest.skip(what)


@contextmanager
def launched():
    """A browser, to be closed by the caller's `with`."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        missing("playwright is not installed")
    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, NAMES)), None)
        try:
            browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        except Error as error:
            missing(f"no Chromium can be started: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


class Visit:
    """One report, opened from disk: everything that it wrote to the console and asked for is kept."""

    def __init__(
        self,
        browser,
        file: Path,
        *,
        width: int = 1280,
        height: int = 900,
        fragment: str = "",
        ready: bool = True,
        script: str = "",
        **context,
    ) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, **context)
        self.context.set_default_timeout(120_000)  # of milliseconds: a busy machine
        self.page = self.context.new_page()
        if script:  # runs before the page's own
            self.page.add_init_script(script)
        self.reported: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.reported.append(message.text))
        self.page.on("pageerror", lambda error: self.reported.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.url = file.as_uri()
        self.page.goto(self.url + fragment)
        if ready:
            self.page.wait_for_selector("html[data-ready]", state="attached")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def quiet(self) -> None:
        assert self.reported == [], self.reported
        assert {url.partition("#")[0] for url in self.asked} == {self.url}
