"""The picture of a report in the README and on the documentation site, made again:

python -m tools.report_picture    # in .venv, after `make test` has installed a browser
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "report.png"
_SIZE = {"width": 1280, "height": 1150}
"""CSS pixels: the first screen and the beginning of the first finding."""


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import launched

    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        page, report = browser.new_page(viewport=_SIZE, color_scheme="light"), Path(folder) / "report.html"
        words = ["run", "--quiet", "--html", str(report), "examples/unet_mask.py"]
        # the script fails on purpose
        subprocess.run([sys.executable, "-m", "dtypetrace", *words], cwd=ROOT, check=False)
        page.goto(report.as_uri())
        page.screenshot(path=str(PICTURE))
    Image.open(PICTURE).quantize(128).save(PICTURE, optimize=True)  # a third of the bytes, and no difference to see


if __name__ == "__main__":
    main()
