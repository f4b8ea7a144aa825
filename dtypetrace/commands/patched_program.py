"""A program some of whose files run with a patched text: compiled under their original paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from typing import Any

from ..program import Program
from ..records.text import show_patched


def patch(program: Program, texts: Mapping[str, str], encodings: Mapping[str, str]) -> None:
    """From now on this process runs, imports and shows these files with these texts."""
    encoded = {file: text.encode(encodings[file]) for file, text in texts.items()}
    # places have normal paths; python runs a script under the path that it was given (../train.py)
    own = os.path.abspath(program.file) if program.file else ""
    program.text = encoded.get(program.file) or encoded.get(own)
    show_patched({**texts, **({program.file: texts[own]} if own in texts else {})})
    sys.meta_path.insert(0, PatchedFiles(encoded))


class PatchedFiles:
    """A finder that loads patched modules with their patched text."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self.texts = texts

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # the finders before this one call it, too
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if spec.origin in self.texts and type(spec.loader) is SourceFileLoader:
                    spec.loader = _PatchedLoader(spec.loader.name, spec.origin, self.texts[spec.origin])
                return spec
        return None


class _PatchedLoader(SourceFileLoader):
    def __init__(self, name: str, file: str, text: bytes) -> None:
        super().__init__(name, file)
        self.text = text

    def get_data(self, path: str) -> bytes:
        return self.text if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)
