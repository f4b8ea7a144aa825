"""Where an op was called: stacks as keys while the program runs, files and character columns afterwards."""

from __future__ import annotations

import gc
import linecache
import sys
import weakref
from pathlib import Path

import programs
import pytest
import torch

from dtypetrace.capture import stacks
from dtypetrace.capture.stacks import Places, UserCode
from dtypetrace.records.text import LIVE


def everything(_file: str) -> bool:
    return True


def run(text: str, file, **names):
    Path(file).write_text(text, encoding="utf-8")
    linecache.checkcache(str(file))
    exec(compile(text, str(file), "exec"), names)
    return names


# ---------------------------------------------------------------- numbers


def test_the_same_stack_has_the_same_number(tmp_path):
    places, numbers = Places(), []
    text = "def f():\n    here(); here()\nfor i in range(3):\n    f()\nf()\n"
    run(text, tmp_path / "p.py", here=lambda: numbers.append(places.here(sys._getframe(1))))
    first, second = numbers[0], numbers[1]
    assert first != second  # the same line, another call
    assert numbers[:6] == [first, second] * 3
    assert set(numbers[6:]).isdisjoint(numbers[:6])  # f, called from another line
    assert len(places) == 4


def test_a_place_keeps_no_frame_alive():
    class Big:
        pass

    places = Places()

    def hold():
        big = Big()
        places.here(sys._getframe(0))
        return weakref.ref(big)

    gone = hold()
    gc.collect()
    assert gone() is None


def test_the_stack_reaches_from_the_op_to_the_program_s_first_line(tmp_path):
    program = programs.run(
        tmp_path,
        """
        def inner(x):
            return x @ torch.ones(2, 2).half()
        def outer(x):
            return inner(x)
        outer(torch.ones(2, 2))
        """,
    )
    stack = [f for f in program.only.site.stack if f.file == program.file]
    assert [f.function for f in stack] == ["inner", "outer", "<module>"]
    assert [f.line for f in stack] == [program.line("x @"), program.line("return inner"), program.line("outer(torch")]


def test_a_module_s_ops_are_on_the_stack_of_its_call(tmp_path):
    """Inside a module the walk stops at the module's own call and continues where that was made: nothing is lost."""
    program = programs.run(
        tmp_path,
        """
        class Inner(nn.Module):
            def forward(self, x):
                return self.mix(x)
            def mix(self, x):
                return x @ torch.ones(2, 2).half()
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()
            def forward(self, x):
                return self.inner(x)
        net = Outer()
        net(torch.ones(2, 2))
        """,
    )
    stack = [f for f in program.only.site.stack if f.file == program.file]
    assert [f.function for f in stack] == ["Inner.mix", "Inner.forward", "Outer.forward", "<module>"]
    assert program.only.module == "net.inner"


def test_torch_and_dtypetrace_are_not_on_the_stack(tmp_path):
    program = programs.run(tmp_path, "net = nn.Sequential(nn.Linear(2, 2)).half()\nnet(torch.ones(1, 2))")
    files = {f.file for f in program.only.site.stack}
    assert not [f for f in files if f.startswith((stacks.TORCH_FOLDER, stacks._OWN_FOLDER))]
    assert program.only.site.file == program.file


def test_a_boundary_that_was_left_is_reported():
    places = Places()
    here = sys._getframe(0)
    gone = id(object())
    assert places.here(here, boundary=gone) == -2
    assert places.here(here, boundary=id(here), outer=7) == 7  # nothing between: the outer place itself
    assert places.here(None) == -1


def test_a_place_continues_in_its_outer_one():
    places = Places()

    def inner(boundary, outer):
        return places.here(sys._getframe(0), id(boundary), outer)

    frame = sys._getframe(0)
    outer = places.here(frame)
    number = inner(frame, outer)
    resolved = places.resolve(places.files(everything), LIVE)
    assert resolved[number].stack[0].function.endswith("inner")
    assert resolved[number].stack[1:] == resolved[outer].stack


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("x = torch.ones(2, 2); h = x.half(); x @ h", "x @ h"),
        ("ä = torch.ones(2, 2); é = ä.half(); ä @ é", "ä @ é"),
        ("x, s = torch.ones(2, 2), '☃ 😀 漢字'; y = x.mm(x.half())", "x.mm(x.half())"),
        ("x = torch.ones(2, 2)\nif x is not None:\n\tx.mm(\tx.half())", "x.mm(\tx.half())"),
        ("x = torch.ones(2, 2)\ny = (x + 1).mm(x.half()) + 1", "(x + 1).mm(x.half())"),
    ],
)
def test_columns_count_characters_from_1(text, marked, tmp_path):
    program = programs.run(tmp_path, text)
    assert program.marked(program.only.site) == marked


def test_a_call_over_several_lines(tmp_path):
    program = programs.run(tmp_path, "ä = torch.ones(2, 2)\ny = ('é', ä.mm(\n    ä.half(),\n))\n")
    site = program.only.site
    assert (site.line, site.column, site.end_line, site.end_column) == (2, 11, 4, 2)


def test_a_chain_over_several_lines_is_placed_at_its_last_call(tmp_path):
    program = programs.run(tmp_path, "x = torch.ones(2, 2)\ny = (x\n     .mul(2)\n     .mm(x.half())\n     .sum())\n")
    site = program.only.site
    assert (site.end_line, site.end_column) == (4, 19)
    assert site.line in (2, 4)


def test_a_place_without_text_has_no_column_but_a_line(tmp_path):
    places, numbers = Places(), []
    code = compile("\n\nhere()", "<generated>", "exec")
    exec(code, {"here": lambda: numbers.append(places.here(sys._getframe(1)))})
    frame = places.resolve(places.files(everything), LIVE)[numbers[0]].stack[0]
    assert (frame.file, frame.line) == ("<generated>", 3)
    assert frame.column == 1  # ASCII or unknown: a byte is a character


def test_paths_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places, numbers = Places(), []
    run("here()", "relative.py", here=lambda: numbers.append(places.here(sys._getframe(1))))
    assert places.resolve(places.files(everything), LIVE)[numbers[0]].file == str(tmp_path / "relative.py")


def test_equal_code_in_two_files(tmp_path):
    """Code objects compare by value, and the file's name is no part of it: a copied file is still another file."""
    text = "def make():\n    return here()\nmake()\n"
    found = []
    for name in ("one.py", "two.py"):
        places, numbers = Places(), []
        run(text, tmp_path / name, here=lambda: numbers.append(places.here(sys._getframe(1))))
        found.append(Path(places.resolve(places.files(everything), LIVE)[numbers[0]].file).name)
    assert found == ["one.py", "two.py"]


def test_equal_code_in_two_files_of_one_run(tmp_path):
    places, numbers = Places(), []
    for name in ("one.py", "two.py"):
        run(
            "def make():\n    return here()\nmake()\n",
            tmp_path / name,
            here=lambda: numbers.append(places.here(sys._getframe(1))),
        )
    assert [Path(places.resolve(places.files(everything), LIVE)[n].file).name for n in numbers] == ["one.py", "two.py"]


def test_a_traceback_s_frames(tmp_path):
    places = Places()
    file = tmp_path / "raises.py"
    try:
        run("def f():\n    raise ValueError\nf()\n", file)
    except ValueError as error:
        tb = error.__traceback__.tb_next.tb_next  # below this file's run
        frames = []
        while tb is not None:
            frames.append((tb.tb_frame.f_code, tb.tb_lasti))
            tb = tb.tb_next
    number = places.of_frames(frames[::-1])
    assert [(f.function, f.line) for f in places.resolve(places.files(everything), LIVE)[number].stack] == [
        ("f", 2),
        ("<module>", 3),
    ]
    assert places.of_frames(frames[::-1]) == number
    assert places.of_frames([]) == -1


# ---------------------------------------------------------------- whose code


@pytest.fixture
def project(tmp_path):
    """A git checkout with a script in a sub-folder, a virtual environment in it, and another folder beside it."""
    for folder in ("repo/.git", "repo/src", "repo/scripts", "repo/.venv/lib/python3.11/site-packages/lib", "other"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def test_the_user_s_code_is_the_script_s_git_root(project):
    user = UserCode(project / "repo/scripts/train.py")
    assert user(str(project / "repo/scripts/train.py"))
    assert user(str(project / "repo/src/model.py"))
    assert not user(str(project / "other/helper.py"))
    assert not user(str(project / "repo/.venv/lib/python3.11/site-packages/lib/a.py"))


def test_without_git_it_is_the_script_s_folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    user = UserCode(tmp_path / "a" / "train.py")
    assert user(str(tmp_path / "a" / "b" / "model.py"))
    assert not user(str(tmp_path / "c.py"))
    assert not user(str(tmp_path / "ab.py"))


def test_a_source_folder_overrides(project):
    user = UserCode(project / "repo/scripts/train.py", source=project / "other")
    assert user(str(project / "other/helper.py"))
    assert not user(str(project / "repo/scripts/train.py"))


@pytest.mark.parametrize(
    ("file", "is_user"),
    [("<string>", True), ("<stdin>", True), ("<frozen runpy>", False), ("<__array_function__ internals>", False)],
)
def test_code_without_a_file(file, is_user, tmp_path):
    assert UserCode(tmp_path / "train.py")(file) is is_user


def test_installed_code_and_the_standard_library_are_not_the_user_s():
    user = UserCode("/train.py")  # the root folder holds everything
    assert not user(torch.__file__)
    assert not user(linecache.__file__)
    assert not user(pytest.__file__)


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "model.py").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert UserCode(tmp_path / "real" / "train.py")(str(tmp_path / "link" / "model.py"))
    assert UserCode(tmp_path / "link" / "train.py")(str(tmp_path / "real" / "model.py"))


def test_under_an_installed_runner_the_working_directory_is_the_user_s(tmp_path, monkeypatch):
    """`pytest`, `torchrun` and notebook kernels are __main__ themselves; the user's code is not beside them."""
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", str(Path(pytest.__file__).with_name("__main__.py")), raising=False
    )
    assert UserCode()(str(tmp_path / "train.py"))


def test_frames_say_whose_they_are(tmp_path):
    program = programs.run(
        tmp_path,
        "import helper\nhelper.run(torch)",
        before=f"import sys; sys.path.insert(0, {str(outside(tmp_path))!r})",
    )
    try:
        users = {Path(f.file).name: f.user for f in program.only.site.stack}
        assert users["helper.py"] is False and users["program.py"] is True
        assert Path(program.only.site.file).name == "helper.py"
        assert program.only.site.user_frame.file == program.file
    finally:
        sys.path.remove(str(outside(tmp_path)))
        sys.modules.pop("helper", None)


def outside(tmp_path) -> Path:
    folder = tmp_path.with_name(tmp_path.name + "_outside")
    folder.mkdir(exist_ok=True)
    (folder / "helper.py").write_text("def run(torch):\n    return torch.ones(2, 2).mm(torch.ones(2, 2).half())\n")
    return folder


def installed(folder, name, files):
    """What pip leaves in a folder: the files, and a list of them beside."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    noted = folder / f"{name}-1.0.dist-info"
    noted.mkdir(parents=True)
    lines = [*files, f"{name}-1.0.dist-info/RECORD", "../../bin/tool"]
    (noted / "RECORD").write_text("".join(f"{line},sha256=abc,12\n" for line in lines))


@pytest.mark.parametrize("folder", ["", "vendor", "build/site"])
def test_what_pip_installed_into_the_project_is_not_the_users_own(tmp_path, folder):
    target = tmp_path / folder
    installed(target, "lib", ["lib/__init__.py", "lib/deep/inner.py", "single.py"])
    (target / "own").mkdir()
    user = UserCode(tmp_path / "train.py")
    assert not any(user(str(target / file)) for file in ("lib/__init__.py", "lib/deep/inner.py", "single.py"))
    assert user(str(target / "own" / "model.py")) and user(str(target / "mine.py")) and user(str(tmp_path / "train.py"))


def test_an_editable_install_below_the_root_is_the_users_own(tmp_path):
    """pip lists it beside the packages; the project has at most the build's own ``.egg-info``."""
    (tmp_path / "src" / "mine.egg-info").mkdir(parents=True)
    (tmp_path / "src" / "mine.egg-info" / "top_level.txt").write_text("mine\n")
    installed(tmp_path / ".venv/lib/python3.11/site-packages", "mine", ["__editable___mine_finder.py"])
    user = UserCode(tmp_path / "train.py")
    assert user(str(tmp_path / "src" / "mine" / "model.py"))
    assert not user(str(tmp_path / ".venv/lib/python3.11/site-packages/__editable___mine_finder.py"))
    assert user(str(tmp_path / "site-packages-demo" / "model.py"))


FREED = """
    import gc, weakref, numpy as np
    class Large: pass
    def work():
        array = np.arange(0, 30, 3)
        large = Large()
        alive = weakref.ref(large)
        try:
            made = {call}
        except RuntimeError:
            pass
        del large
        return alive() is None
    freed = work()
"""


@pytest.mark.parametrize(
    "call",
    [
        "torch.from_numpy(array.astype(np.uint8))",
        "torch.tensor(array.astype(np.int16))",
        "torch.FloatTensor([1.0, 2.0])",
        "torch.ones(2, 3) @ torch.ones(3, 2).double()",
        "nn.Linear(3, 2)(torch.ones(2, 3).double())",
    ],
)
def test_no_variable_of_a_function_lives_longer_because_it_was_read(call, tmp_path):
    program = programs.run(tmp_path, FREED.format(call=call), numerics=True)
    assert program.error is None and program.names["freed"], "Python keeps what was read of a frame's variables"


def test_what_the_program_itself_asked_for_stays():
    def work():
        a = 1
        known = locals()
        assert stacks.variables(sys._getframe())["a"] == a
        return known

    assert work()["a"] == 1
    assert stacks.variables(sys._getframe())["work"] is work
