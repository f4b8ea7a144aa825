"""A pytest plugin (``-p standin.plugin``): the stand-in device is there before the tests are collected."""

import os
from pathlib import Path

from . import build

build.register(build.built(Path(os.environ["DTYPETRACE_STANDIN"])))
