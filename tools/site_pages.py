"""The pages of the documentation site that are made from the code: finding codes, commands, API, JSON Schema.

Nothing here imports torch: the API is read from the syntax trees of the package's files.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dtypetrace
from dtypetrace.commands.explain import page
from dtypetrace.tables.codes import TITLES

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = {
    "1": "Refused operations",
    "2": "Silent changes of dtype",
    "3": "Values, gradients and updates",
    "4": "Settings and autocast",
    "5": "Optimizer and loss scaler",
}
"""What the first digit of a code says."""


def pages() -> dict[str, str]:
    """Every generated page: its path on the site and its Markdown."""
    made = {f"codes/{code}.md": code_page(code) for code in TITLES}
    made["codes/index.md"] = code_index()
    made["commands.md"] = commands()
    made["api.md"], made["records.md"] = api()
    made["schema.md"] = schema()
    return made


# ---------------------------------------------------------------- finding codes


def families() -> dict[str, list[str]]:
    """The codes of each family, in order."""
    return {name: sorted(code for code in TITLES if code[2] == digit) for digit, name in FAMILIES.items()}


def code_page(code: str) -> str:
    """The page that ``dtypetrace explain`` prints, with the messages that lead to it."""
    wordings = messages().get(code, [])
    listed = "".join(f"\n- {as_code(wording)}" for wording in wordings)
    lead = f"Print this page: `dtypetrace explain {code}`.\n"
    return f"{page(code)}\n{lead}" + (f"\n## Messages that lead here\n{listed}\n" if wordings else "")


def code_index() -> str:
    """All codes with their titles."""
    blocks = [
        "# Finding codes",
        "Each finding has a code. A code never changes its meaning. The first digit is the family.",
    ]
    for family, codes in families().items():
        rows = "\n".join(f"| [{code}]({code}.md) | {TITLES[code]} |" for code in codes)
        blocks.append(f"## {family}\n\n| code | what was found |\n|---|---|\n{rows}")
    return "\n\n".join(blocks) + "\n"


@functools.cache
def messages() -> dict[str, list[str]]:
    """The wordings of refusals for each code, in plain words: a part that varies is written as three dots."""
    found: dict[str, list[str]] = {}
    table = json.loads((ROOT / "dtypetrace" / "tables" / "refusals.json").read_text("utf-8"))
    for rows in table.values():
        for _, code, _, wording, *_ in rows:
            text = re.sub(r"<(?:_|argument|op)>", "...", _without_patterns(wording))
            if (
                code
                and len(re.findall(r"[A-Za-z]", re.sub(r"<\w+>", "", text))) >= 16
                and text not in found.setdefault(code, [])
            ):
                found[code].append(text)
    return found


def _without_patterns(wording: str) -> str:
    """A wording whose ``{regular expressions}`` are replaced: nothing for a condition or an option, else three dots."""
    parts, depth, pattern = [], 0, ""
    for character in wording:
        depth += (character == "{") - (character == "}")
        if depth or character == "}":
            pattern += character
        if character == "}" and not depth:
            letter = re.fullmatch(r"\{\[?(\w)\w*\]?\??\}", pattern)  # {[Oo]?}nly
            nothing = pattern.startswith(("{(?=", "{(?!", "{(?m:")) or pattern.endswith(("?}", "*}"))
            parts.append(
                " " if re.match(r"\{(?: |\\s|\[\\s)", pattern) else letter[1] if letter else "" if nothing else "..."
            )
            pattern = ""
        elif not depth:
            parts.append(character)
    return " ".join("".join(parts).split())


def as_code(text: str) -> str:
    """Text as Markdown code, whatever backticks are in it."""
    text = " ".join(text.split())
    return f"`` {text} ``" if "`" in text else f"`{text}`"


# ---------------------------------------------------------------- commands


def commands() -> str:
    """The help text of each command, as a terminal shows it."""
    from dtypetrace.__main__ import parser

    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "96"
    try:
        main = parser()
        helps = {"dtypetrace": main.format_help()} | {f"dtypetrace {n}": p.format_help() for n, p in _commands_of(main)}
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    body = "\n\n".join(f"## {name}\n\n```text\n{text.strip()}\n```" for name, text in helps.items())
    return f"# Commands\n\nWhat `--help` prints for each command.\n\n{body}\n"


def _commands_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


# ---------------------------------------------------------------- API


@dataclass
class _Reader:
    """Finds where a name of the package is defined, by its import statements."""

    trees: dict[str, ast.Module] = field(default_factory=dict)

    def tree(self, module: str) -> ast.Module | None:
        if module not in self.trees:
            base = ROOT.joinpath(*module.split("."))
            file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            if not file.is_file():
                return None
            self.trees[module] = ast.parse(file.read_text("utf-8"))
        return self.trees[module]

    def is_package(self, module: str) -> bool:
        return ROOT.joinpath(*module.split(".")).is_dir()

    def find(self, module: str, name: str) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
        """The module and the definition of a class or function that ``module`` defines or imports."""
        tree = self.tree(module)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name and node in tree.body:
                return module, node
            if isinstance(node, ast.ImportFrom) and node.level:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        above = module.split(".")[: len(module.split(".")) - node.level + self.is_package(module)]
                        return self.find(".".join([*above, *filter(None, [node.module])]), alias.name)
        return None


def api() -> tuple[str, str]:
    """Two pages: the public names with the objects that they return, and the records that those are made of."""
    reader = _Reader()
    names = sorted({*dtypetrace.__all__} - {"errors"}, key=lambda n: (n.lower(), n[0].isupper()))
    public = {name: reader.find("dtypetrace", name) for name in names}
    kinds = [node.name for node in reader.tree("dtypetrace.errors").body if isinstance(node, ast.ClassDef)]
    errors = [reader.find("dtypetrace.errors", name) for name in kinds]
    known = {name for name, found in public.items() if found}
    returned = _mentioned(reader, [found for found in public.values() if found], known)
    deeper: dict[str, Any] = {}
    layer = returned
    while layer:
        layer = _mentioned(reader, list(layer.values()), known | set(returned) | set(deeper))
        deeper |= layer
    first = "# API\n\nThe public names, as `import dtypetrace` offers them, with the text of their docstrings.\n\n"
    first += "\n\n".join(_described(reader, *found, prefix="dtypetrace.") for found in public.values() if found)
    first += "\n\n## Errors\n\n" + "\n\n".join(
        _described(reader, *found, prefix="dtypetrace.errors.") for found in errors
    )
    first += "\n\n# What they return\n\n" + "\n\n".join(_described(reader, *f) for _, f in sorted(returned.items()))
    second = (
        "# Records\n\nThe plain data behind the [API](api.md): what a finding, a flow and a recording are made of.\n\n"
        + "\n\n".join(_described(reader, *found) for _, found in sorted(deeper.items()))
    )
    return first.replace("\n# What they return", "\n## What they return") + "\n", second + "\n"


def _mentioned(reader: _Reader, found: list[Any], known: set[str]) -> dict[str, Any]:
    """The package's classes that stand in the annotations of results and fields of these definitions."""
    made: dict[str, Any] = {}
    for module, node in found:
        for home, member in _members(reader, module, node) if isinstance(node, ast.ClassDef) else [(module, node)]:
            annotation = member.returns if isinstance(member, ast.FunctionDef) else member.annotation
            for name in _names_in(annotation):
                definition = None if name in known or name.startswith("_") else reader.find(home, name)
                if definition and isinstance(definition[1], ast.ClassDef):
                    made[name] = definition
    return made


def _names_in(annotation: ast.expr | None) -> Iterator[str]:
    for node in ast.walk(annotation) if annotation else ():
        if isinstance(node, ast.Name):
            yield node.id


def _members(reader: _Reader, module: str, node: ast.ClassDef) -> list[tuple[str, Any]]:
    """Public methods, properties and fields, the class's own first, then inherited ones."""
    own = [
        (module, m)
        for m in node.body
        if (isinstance(m, ast.FunctionDef) and not m.name.startswith("_"))
        or (isinstance(m, ast.AnnAssign) and isinstance(m.target, ast.Name) and not m.target.id.startswith("_"))
    ]
    seen = {_name_of(m) for _, m in own}
    for base in node.bases:
        found = reader.find(module, base.id) if isinstance(base, ast.Name) else None
        if found and isinstance(found[1], ast.ClassDef):
            own += [(home, m) for home, m in _members(reader, *found) if _name_of(m) not in seen]
    return own


def _name_of(member: ast.FunctionDef | ast.AnnAssign) -> str:
    return member.name if isinstance(member, ast.FunctionDef) else ast.unparse(member.target)


def _described(reader: _Reader, module: str, node: ast.ClassDef | ast.FunctionDef, prefix: str = "") -> str:
    """One definition as Markdown: signature, docstring, fields, members."""
    if isinstance(node, ast.FunctionDef):
        return _function(node, f"## {prefix}{node.name}", prefix)
    level = "##" if prefix else "###"
    blocks = [f"{level} {prefix}{node.name}", plain(ast.get_docstring(node) or "")]
    members = [m for _, m in _members(reader, module, node)]
    if not prefix:  # what a public class lists already is named, not repeated
        own = [m for m in members if m in node.body]
        inherited = [_name_of(m) for m in members if m not in own]
        if inherited:
            named = ", ".join(f"`{name}`" for name in inherited)
            blocks.append(f"Inherited from `{ast.unparse(node.bases[0])}`: {named}.")
        members = own
    fields = [m for m in members if isinstance(m, ast.AnnAssign)]
    if fields:
        rows = "\n".join(f"| `{_name_of(m)}` | {_cell(ast.unparse(m.annotation))} |" for m in fields)
        blocks.append(f"| field | type |\n|---|---|\n{rows}")
    methods = [m for m in members if isinstance(m, ast.FunctionDef)]
    blocks += [_function(m, f"{level}# {node.name}.{m.name}", f"{node.name.lower()}.") for m in methods]
    return "\n\n".join(block for block in blocks if block)


def _cell(code: str) -> str:
    return "`" + code.replace("|", "\\|") + "`"


def _function(node: ast.FunctionDef, heading: str, prefix: str) -> str:
    is_property = any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments = ast.arguments(
            **{f: getattr(arguments, f) for f in ast.arguments._fields if f != "args"}, args=arguments.args[1:]
        )
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    signature = f"{prefix}{node.name}" + ("" if is_property else f"({ast.unparse(arguments)})") + result
    names = [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
    return (
        f"{heading}\n\n```python\n{wrapped(signature)}\n```\n\n{plain(ast.get_docstring(node) or '', names)}".rstrip()
    )


def wrapped(signature: str) -> str:
    """A signature with one argument on each line where it is longer than 88 columns."""
    if len(signature) <= 88 or "(" not in signature:
        return signature
    opening, closing = signature.index("("), signature.rindex(")")
    parts, depth, start = [], 0, opening + 1
    for at in range(opening + 1, closing):
        depth += (signature[at] in "([{") - (signature[at] in ")]}")
        if signature[at] == "," and not depth:
            parts.append(signature[start:at].strip())
            start = at + 1
    parts.append(signature[start:closing].strip())
    return signature[: opening + 1] + "".join(f"\n    {part}," for part in parts) + "\n" + signature[closing:]


def plain(docstring: str, arguments: Sequence[str] = ()) -> str:
    """A docstring as Markdown: code in single backticks, examples in blocks, a paragraph about arguments as a list."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = "\n\n".join(_listed(paragraph, arguments) for paragraph in text.split("\n\n"))
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines += ["```pycon"] if not lines or not lines[-1] else ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(re.sub(r"\s*# doctest:.*", "", line) if inside else line)
    return "\n".join([*lines, "```"] if inside else lines)


def _listed(paragraph: str, arguments: Sequence[str]) -> str:
    """A paragraph that begins ``name: ...`` with a line for each argument, and one for what is returned and raised."""
    names = "|".join(map(re.escape, arguments))
    if not names or not re.match(rf"(?:{names}): ", paragraph):
        return paragraph
    parts = re.split(rf"(?<=[.)])\s+(?=(?:{names}):\s|Returns |Raises )", paragraph)
    shown = [re.sub(rf"^({names}): ", r"`\1`: ", " ".join(part.split())) for part in parts]
    of_arguments = [part for part in shown if part.startswith("`")]
    return "\n\n".join(["\n".join(f"- {part}" for part in of_arguments), *shown[len(of_arguments) :]])


# ---------------------------------------------------------------- JSON Schema


def schema() -> str:
    """The JSON report's schema as tables, one for each kind of object."""
    written = json.loads((ROOT / "dtypetrace" / "tables" / "report.schema.json").read_text("utf-8"))
    blocks = [
        "# JSON report",
        f"What `dtypetrace run --json F` and `to_json` write, as schema {written['properties']['schema']['const']}. "
        f"{written['description']} The same description for programs, as a JSON Schema: "
        "[report.schema.json](files/dtypetrace/tables/report.schema.json).",
        "## The report",
        _table(written),
    ]
    for name, body in written["$defs"].items():
        blocks += [f"## {name}", _markdown(body.get("description", "")), _table(body)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(body: dict[str, Any]) -> str:
    rows = []
    for name, form in body.get("properties", {}).items():
        always = "" if name in body.get("required", ()) else "may be absent. "
        text = (always + _markdown(form.get("description", ""))).strip()
        rows.append(f"| `{name}` | {_type(form)} | {text[:1].upper() + text[1:]} |")
        for inner, value in form.get("properties", {}).items():
            rows.append(f"| `{name}.{inner}` | {_type(value)} | {_markdown(value.get('description', ''))} |")
    return "| field | type | meaning |\n|---|---|---|\n" + "\n".join(rows) if rows else ""


def _type(form: dict[str, Any]) -> str:
    if "$ref" in form:
        name = form["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in form:
        return f"always `{form['const']}`"
    if "enum" in form:
        values = form["enum"]
        return ", ".join(f"`{v}`" for v in values) if len(values) < 12 else f"one of {len(values)} words"
    if "anyOf" in form:
        return " or ".join(_type(each) for each in form["anyOf"])
    if form.get("type") == "array" and "prefixItems" in form:
        return "[" + ", ".join(_type(each) for each in form["prefixItems"]) + "]"
    if form.get("type") == "array":
        return f"list of {_type(form.get('items', {}))}"
    kind = form.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else kind


def _markdown(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", text).replace("\n", " ").replace("|", "\\|")
