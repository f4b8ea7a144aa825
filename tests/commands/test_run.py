"""``dtypetrace run`` against plain python: each program is run both ways, side by side, and compared.

What must be the same: exit status, standard output, and standard error up to dtypetrace's own
report, which is printed after the program's own last words.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import warm

from dtypetrace import saved
from dtypetrace.records import Recording, Results

ROOT = Path(__file__).parents[2]
RUN = (sys.executable, "-m", "dtypetrace", "run")
UNSEEN = "never imported torch, so there was nothing to watch\n"
TIMEOUT = 240

pytestmark = pytest.mark.slow


@dataclass
class Ended:
    status: int
    out: str
    err: str


def start(command, cwd, **environment) -> subprocess.Popen:
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONWARNINGS")}
    env.update(PYTHONPATH=str(ROOT), PYTHONHASHSEED="0", **environment)
    return subprocess.Popen(
        [*map(str, command)], cwd=cwd, env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> Ended:
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    return Ended(process.returncode, out, err)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))


def both(words, cwd: Path, options=(), python=(), **environment) -> tuple[Ended, Ended]:
    """How plain python and dtypetrace run end, run at the same time."""
    plain = start([sys.executable, *python, *words], cwd, **environment)
    traced = start([sys.executable, *python, *RUN[1:], *options, *words], cwd, **environment)
    return finish(plain), finish(traced)


def forked(cwd: Path, *words) -> Ended:
    """How Python ends with these words, in a fork of a process that has imported torch."""
    done = warm.run(list(words), cwd)
    return Ended(done.returncode, done.stdout, done.stderr)


def both_forked(words, cwd: Path, options=()) -> tuple[Ended, Ended]:
    """The same for programs that import torch, in forks: what is compared is not how a process starts."""
    return forked(cwd, *words), forked(cwd, *RUN[1:], *options, *words)


def same(plain: Ended, traced: Ended) -> str:
    """Asserts that the two ended alike; returns what dtypetrace printed after the program's own text."""
    assert traced.status == plain.status, traced.err
    assert traced.out == plain.out
    assert traced.err[: len(plain.err)] == plain.err
    rest = traced.err[len(plain.err) :]
    assert "internal error" not in rest
    return rest


def run(*words, cwd: Path, **environment) -> Ended:
    return finish(start([*RUN, *words], cwd, **environment))


# ---------------------------------------------------------------- what a program sees

FACTS = """
    import pickle, sys

    class Point:
        pass

    def facts():
        known = dict(globals())
        known["__builtins__"] = type(known["__builtins__"]).__name__
        for name in ("__loader__", "__spec__"):
            known[name] = type(known[name]).__name__, getattr(known[name], "name", None)
        return {k: str(v) for k, v in known.items() if k.startswith("__")}

    if __name__ == "__main__":
        print(sys.argv, sys.path[0], list(globals())[:8])
        print(facts())
        print(pickle.dumps(Point()), type(pickle.loads(pickle.dumps(Point()))) is Point)
        print(sys.modules["__main__"].__dict__ is globals(), sys.exc_info())
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory) -> Path:
    """A folder with one program in every form that python can start."""
    folder = tmp_path_factory.mktemp("facts")
    for inner in ("pkg", "pkg/deep", "folder", "links"):
        (folder / inner).mkdir()
    for path in ("script", "pkg/__main__", "pkg/deep/module", "folder/__main__"):
        write(folder, **{path: FACTS})
    write(folder, **{"pkg/__init__": "print('package imported')", "pkg/deep/__init__": ""})
    (folder / "links" / "link.py").symlink_to("../script.py")
    (folder / "no_suffix").write_text(textwrap.dedent(FACTS))
    subprocess.run([sys.executable, "-m", "zipfile", "-c", "app.zip", "folder/__main__.py"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "zipapp", "folder", "-o", "app.pyz"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "script.py", "./script.py", "folder/../script.py", "links/link.py", "no_suffix", "folder", "./folder/", "app.pyz",
        "-m script", "-m pkg", "-m pkg.deep.module",
    ],
)  # fmt: skip
def test_a_program_sees_what_it_sees_under_python(facts, words):
    arguments = ["--json", "x", "-m", "--", "-h", "", "a b", "--precision", "off"]
    assert same(*both([*words.split(), *arguments], facts)) == f"dtypetrace: {words.split()[-1]} {UNSEEN}"


def test_a_folder_may_be_the_working_directory(facts):
    same(*both(["."], facts / "folder"))
    same(*both([facts / "script.py"], facts / "folder"))


def test_python_may_be_asked_to_put_no_folder_on_the_path(facts):
    for words in ("script.py", "folder"):
        same(*both([words], facts, python=["-P"]))
    plain, traced = both(["-m", "script"], facts, python=["-P"])  # so neither finds it
    assert (plain.status, traced.status) == (1, 2)


def test_options_of_argparse_scripts_are_theirs(tmp_path):
    write(
        tmp_path,
        train="""
            import argparse
            parser = argparse.ArgumentParser()
            parser.add_argument("--json")
            parser.add_argument("-m", type=int)
            parser.add_argument("rest", nargs="*")
            print(parser.parse_args())
        """,
    )
    same(*both(["train.py", "--json", "a", "-m", "3", "--", "x", "-y"], tmp_path))
    same(*both(["train.py", "--help"], tmp_path))
    same(*both(["train.py", "--nope"], tmp_path))


# ---------------------------------------------------------------- how a program ends

ENDINGS = {
    "falls off its end": "print('done')",
    "exit with a number": "import sys; sys.exit(3)",
    "exit with nothing": "import sys; sys.exit()",
    "exit with True": "import sys; sys.exit(True)",
    "exit with a negative number": "import sys; sys.exit(-1)",
    "exit with a number too large": "import sys; sys.exit(2 ** 70)",
    "exit with a text": "import sys; sys.exit('no such model')",
    "raise SystemExit of a tuple": "raise SystemExit(1, 'x')",
    "exit while an error is handled": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise SystemExit(4)",
    "error": "def f(x):\n    return g(x)\ndef g(x):\n    return x / 0\nf(1)",
    "error with a cause": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('bad') from e",
    "error in a handler": "def f():\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        {}['x']\nf()",
    "error group": "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])",
    "error with notes": "e = ValueError('x')\ne.add_note('of its own')\nraise e",
    "error that cannot be printed": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
    "another BaseException": "raise GeneratorExit('x')",
    "no such module": "import no_such_module_here",
    "syntax error": "x = 1\ndef (:\n    pass",
    "indentation error": "if 1:\n\tx = 1\n        y = 2",
    "syntax error in an import": "import broken",
    "warning at compile time": "x = 1 is 1\nprint('\\d')",
    "interrupt": "raise KeyboardInterrupt",
    "interrupt of a kind": "class Mine(KeyboardInterrupt): pass\nraise Mine",
    "interrupt by signal": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
    "interrupt handled": "import os, signal\nsignal.signal(signal.SIGINT, lambda *a: print('no'))\nos.kill(os.getpid(), 2)",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "killed for good": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "killed after a print": "import os, signal, time\nprint('lost in the buffer')\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)",
    "os._exit": "import os\nos._exit(5)",
    "hook": "import sys\nsys.excepthook = lambda t, e, tb: print('hook', t, e, tb.tb_lineno, tb.tb_frame.f_code.co_name, sys.exc_info())\n1 / 0",
    "hook that fails": "import sys\ndef hook(*a):\n    {}['x']\nsys.excepthook = hook\n1 / 0",
    "hook that exits": "import sys\ndef hook(*a):\n    sys.exit('bye')\nsys.excepthook = hook\nraise KeyboardInterrupt",
    "hook that is gone": "import sys\ndel sys.excepthook\n1 / 0",
    "hook on exit": "import sys\nsys.excepthook = print\nsys.exit(2)",
    "no stderr": "import sys\nsys.stderr = None\nsys.exit('text')",
    "another stderr": "import io, sys\nsys.stderr = io.StringIO()\n1 / 0",
    "last error": "import atexit, sys\natexit.register(lambda: print(repr(sys.last_value), sys.last_traceback.tb_lineno))\n1 / 0",
    "atexit": "import atexit, sys\natexit.register(lambda: print('bye', sys.excepthook is sys.__excepthook__))\nraise KeyboardInterrupt",
    "atexit that fails": "import atexit\n@atexit.register\ndef late():\n    print('bye')\nprint('end')",
    "objects at the end": "class A:\n    def __del__(self): print('gone')\na = A()",
    "objects before the end": "class A:\n    def __del__(self): print('gone')\ndef f():\n    a = A()\n    raise SystemExit\n"
    "import atexit\natexit.register(print, 'late')\nf()",
    "thread": "import threading, time\ndef f():\n    time.sleep(.3)\n    print('thread')\nthreading.Thread(target=f).start()\n"
    "import atexit\natexit.register(print, 'late')\n1 / 0",
    "daemon thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "fork that raises": "import os\nif os.fork() == 0:\n    raise ValueError('child')\nprint(os.wait()[1])",
    "fork that exits": "import os, sys\nif os.fork() == 0:\n    sys.exit(7)\nprint(os.wait()[1])",
    "closed stdout": "import sys\nprint('x')\nsys.stdout.close()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_under_python(tmp_path, ending):
    write(tmp_path, program=ENDINGS[ending], broken="x = (")
    rest = same(*both(["program.py"], tmp_path))
    assert rest in (f"dtypetrace: program.py {UNSEEN}", ""), rest
    assert (rest == "") == (ending == "killed for good")


@pytest.mark.parametrize(
    "ending", ["error", "exit with a text", "interrupt", "syntax error", "hook that fails", "objects before the end"]
)
def test_a_module_ends_as_under_python(tmp_path, ending):
    write(tmp_path, program=ENDINGS[ending])
    same(*both(["-m", "program"], tmp_path))


# ---------------------------------------------------------------- bad usage

BAD = {
    "": "no command given",
    "run": "no script given",
    "run --json out.json": "no script given",
    "run -m": "no module given",
    "rum script.py": "no such command: 'rum'",
    "script.py --lr 1": "Did you mean: dtypetrace run script.py --lr 1",
    "run nope.py": "no such script: 'nope.py'",
    "run -": "Save it to a file",
    "run empty": "'empty' holds no __main__.py",
    "run -m nope": "no module named 'nope'",
    "run -m nope.deep": "no module named 'nope'",
    "run -m package.nope": "No module named package.nope",
    "run -m package": "'package' is a package and cannot be directly executed",
    "run -m script.py": "Give its path without -m",
    "run -m .": "no module named",
    "run --nope script.py": "no such option: --nope",
    "run -c print()": "no such option: -c",
    "run --json": "expected one argument",
    "run --json missing/out.json script.py": "no such folder",
    "run --json empty script.py": "is a folder",
    "run --json /dev/null script.py": "needs a regular file",
    "run --html script.py script.py": "--html",
    "run --json out --save ./out script.py": "uses that file for something else",
    "show --html kept.trace kept.trace": "uses that file for something else",
    "diff --html kept.trace kept.trace kept.trace": "uses that file for something else",
    "diff kept.trace kept.trace more": "too many arguments: more",
    "contract write --file script.py script.py": "uses that file for something else",
    "run --source missing script.py": "no such folder",
    "run --fail-on fatal script.py": "invalid choice: 'fatal'",
    "run --ignore DT1,x script.py": "--ignore needs finding codes such as DT201, got 'DT1'",
    "run --ignore DT201,DT999 script.py": "--ignore: there is no finding DT999",
    "run --steps abc script.py": "--steps needs a whole number of at least 1, got 'abc'",
    "run -m torch.distributed.run --nproc-per-node 2 script.py": "torchrun [options] -m dtypetrace run train.py",
    "run -m torch.distributed.launch script.py": "torchrun [options] -m dtypetrace run train.py",
    "run bin/torchrun script.py": "torchrun [options] -m dtypetrace run train.py",
    "run -m accelerate.commands.launch script.py": "accelerate launch [options] -m dtypetrace run train.py",
    "run bin/accelerate launch script.py": "accelerate launch [options] -m dtypetrace run train.py",
}


def test_bad_usage_is_one_clear_line_and_status_2(tmp_path):
    write(tmp_path, script="print('ran')")
    for name in ("empty", "package", "bin"):
        (tmp_path / name).mkdir()
    write(tmp_path, **{"package/__init__": ""})
    (tmp_path / "bin" / "torchrun").touch()
    saved.save(tmp_path / "kept.trace", Results(Recording()))
    before = {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    for words, message in BAD.items():
        ended = finish(start([sys.executable, "-m", "dtypetrace", *words.split()], tmp_path))
        assert (ended.status, ended.out) == (2, ""), words
        assert ended.err.startswith("dtypetrace: error: ") and ended.err.count("\n") == 1, ended.err
        assert message in ended.err, (words, ended.err)
    assert {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


def test_help_and_bad_usage_import_no_torch(tmp_path):
    write(
        tmp_path,
        check="""
            import sys
            from dtypetrace.__main__ import main
            for words in (["--help"], ["run", "--help"], ["run", "nope.py"], ["run", "empty.py"]):
                try:
                    main(words)
                except SystemExit as end:
                    print(words, end.code, "torch" in sys.modules)
        """,
        empty="",
    )
    ended = finish(start([sys.executable, "check.py"], tmp_path))
    assert ended.out.count("False") == 4 and "run.rank1.trace" in ended.out


NO_PYTHON = {
    "brackets.py": b"def f(:\n", "indented.py": b"x = 1\n  y = 2\n", "bytes.py": b"x = '\xff'\n",
    "null.py": b"x = 1\0\n", "outside": b"return 1\n", "declared.py": b"# coding: latin-9999\n", "nested.py": b"(" * 300,
}  # fmt: skip


@pytest.mark.parametrize("command", ["run", "run --precision reference", "run --dry-run", "fix", "plan"])
def test_what_is_no_python_is_said_as_python_says_it_and_without_torch(tmp_path, command):
    write(tmp_path, torch="raise SystemExit('torch was imported')")
    for name, text in NO_PYTHON.items():
        (tmp_path / name).write_bytes(text)
        plain = start([sys.executable, name], tmp_path)
        ended = finish(start([sys.executable, "-m", "dtypetrace", *command.split(), name], tmp_path))
        rest = same(finish(plain), ended)
        assert ended.status == 1 and rest in ("", f"dtypetrace: {name} {UNSEEN}"), (name, rest)


def test_an_empty_report_needs_no_torch(tmp_path):
    write(tmp_path, torch="raise SystemExit('torch was imported')", program="print('no tensors here')")
    for name, text in {"program.py": None, "brackets.py": NO_PYTHON["brackets.py"]}.items():
        if text is not None:
            (tmp_path / name).write_bytes(text)
        files = {option: tmp_path / f"{name}{option}" for option in ("--json", "--html", "--save")}
        ended = run(*(w for pair in files.items() for w in pair), name, cwd=tmp_path)
        assert ended.err.endswith(UNSEEN) and ended.status == (text is not None), ended.err
        assert all(file.stat().st_size > 100 for file in files.values())


# ---------------------------------------------------------------- programs that use torch

TORCH_ENDINGS = """
    import atexit, os, signal, subprocess, sys, time
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported
    import torch
    from torch import nn

    torch.manual_seed(0)
    print(torch.get_num_threads(), torch.rand(2))
    atexit.register(lambda: print("late", torch.overrides._len_torch_function_stack(), torch.ones(1)))
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item(), torch.rand(1), flush=True)

    def handled():
        try:
            model(torch.ones(2, 3))
        except RuntimeError as error:
            raise LookupError("of the shape") from error

    match sys.argv[1]:
        case "exit":
            sys.exit(3)
        case "raise":
            handled()
        case "refused":
            model.half()(torch.randn(2, 4))
        case "interrupt":
            model[1].register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGINT))
            model(torch.randn(2, 4))
        case "interrupt twice":
            def again(*error):
                print("hook", error[0].__name__, flush=True)
                code = "import os, sys, time\\nfor i in range(40): os.kill(int(sys.argv[1]), 2); time.sleep(.02)"
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                subprocess.Popen([sys.executable, "-c", code, str(os.getpid())])
                time.sleep(.4)
                signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.excepthook = again
            raise KeyboardInterrupt
"""


def outside(text: str) -> list[str]:
    """The lines of a traceback without torch's frames: which of its own lines run depends on the hooks that are on."""
    lines, inside = [], False
    for line in text.splitlines():
        if not line.startswith("    "):
            inside = line.startswith('  File "') and "/torch/" in line
        if not inside:
            lines.append(line)
    return lines


@pytest.fixture
def training(tmp_path) -> Path:
    write(tmp_path, train=TORCH_ENDINGS)
    return tmp_path


def read(path: Path) -> dict:
    report = json.loads(path.read_text())
    assert report["schema"] == 1
    return report


def test_a_training_script_that_exits(training):
    rest = same(*both(["train.py", "exit"], training, options=["--json", "out.json"]))
    assert rest.startswith("dtypetrace: no dtype problem found in 3 steps")
    assert read(training / "out.json")["findings"] == []
    assert sorted(p.name for p in training.iterdir()) == ["out.json", "train.py"]


def test_a_training_script_that_raises(training):
    plain = finish(start([sys.executable, "train.py", "raise"], training))
    traced = forked(training, *RUN[1:], "train.py", "raise")
    assert (traced.status, traced.out) == (plain.status, plain.out)
    own, _, report = traced.err.partition("dtypetrace: ")
    assert outside(own) == outside(plain.err)
    assert report.startswith("no dtype problem found in 3 steps")


def test_a_refused_operation_keeps_its_traceback_and_gets_notes(training):
    plain = finish(start([sys.executable, "train.py", "refused"], training))
    traced = forked(training, *RUN[1:], "--json", "out.json", "train.py", "refused")
    assert (traced.status, traced.out) == (plain.status, plain.out)
    own = outside(plain.err)
    assert outside(traced.err)[: len(own)] == own  # notes stand below the exception's own text
    finding = read(training / "out.json")["findings"][0]
    assert (finding["kind"], finding["severity"]) == ("collision", "error")
    assert finding["site"]["file"] == str(training / "train.py")
    assert plain.err.splitlines()[-1].endswith(finding["exception"]["message"])
    assert "dtypetrace/" not in traced.err and "\nerror[DT" in traced.err


def test_ctrl_c_writes_the_reports_and_dies_by_the_signal(training):
    plain, traced = both(["train.py", "interrupt"], training, options=["--json", "out.json"])
    assert plain.status == traced.status == -signal.SIGINT
    assert traced.out == plain.out
    head, _, report = traced.err.partition("\nKeyboardInterrupt\n")
    assert head.startswith("Traceback (most recent call last):\n") and "dtypetrace" not in head
    assert report.startswith("dtypetrace: no dtype problem found in 3 steps") and "Traceback" not in report
    assert read(training / "out.json")["findings"] == []


def test_more_ctrl_c_leave_whole_files_or_none(training):
    ended = run("--json", "out.json", "train.py", "interrupt twice", cwd=training)
    assert ended.status == -signal.SIGINT
    assert ended.out.count("hook KeyboardInterrupt") == 1
    assert "dtypetrace/program.py" not in ended.err and "dtypetrace/__main__.py" not in ended.err
    assert read(training / "out.json")["findings"] == []
    assert sorted(p.name for p in training.iterdir()) == ["out.json", "train.py"]


def test_fail_on_and_ignore(training):
    write(
        training,
        caught="""
            import sys, torch
            try:
                torch.nn.Linear(4, 4).half()(torch.ones(2, 4))
            except RuntimeError as error:
                print(getattr(error, "__notes__", None))
            sys.exit(int(sys.argv[1]))
        """,
    )
    first = forked(training, *RUN[1:], "--fail-on", "note", "--json", "a.json", "caught.py", "0")
    second = forked(training, *RUN[1:], "--fail-on", "error", "caught.py", "0")
    assert (first.status, first.out) == (1, "None\n"), first.err
    assert (second.status, second.out) == (0, "None\n"), second.err
    codes = {f["code"] for f in read(training / "a.json")["findings"]}
    third = forked(training, *RUN[1:], "--fail-on", "note", "--ignore", ",".join(codes), "caught.py", "0")
    fourth = forked(training, *RUN[1:], "--fail-on", "note", "caught.py", "5")
    assert [third.status, fourth.status] == [0, 5]


def test_an_empty_report_is_still_a_report(tmp_path):
    write(tmp_path, program="1 / 0")
    ended = run("--json", "out.json", "program.py", cwd=tmp_path)
    assert ended.status == 1 and ended.err.endswith(f"dtypetrace: program.py {UNSEEN}")
    assert read(tmp_path / "out.json")["findings"] == []


def test_torch_imported_first_in_another_thread_is_said(tmp_path):
    write(
        tmp_path,
        program="""
            import threading
            t = threading.Thread(target=__import__, args=("torch",)); t.start(); t.join()
            import torch
            print(torch.ones(1))
        """,
    )
    assert "imported torch in another thread" in same(*both(["program.py"], tmp_path))


def test_the_watch_for_torch_leaves_the_import_system_as_it_was(tmp_path):
    write(
        tmp_path,
        program="""
            import importlib.util, sys
            spec = importlib.util.find_spec("torch")
            print(spec.name, type(spec.loader), spec.origin)
            import torch
            print([str(f).split(' at ')[0] for f in sys.meta_path], vars(torch.__spec__.loader), type(torch.__loader__))
            print(importlib.util.find_spec("torch") is torch.__spec__)
        """,
    )
    same(*both(["program.py"], tmp_path))


def test_modules_beside_the_script_are_its_own(tmp_path):
    """dtypetrace must neither import them for the ones it needs, nor have loaded those before the script does."""
    write(
        tmp_path,
        program="""
            import torch
            print(torch.ones(1))
            import html
            print(html.__file__)
        """,
        html="print('html of the script')",
        networkx="print('networkx of the script')",
        rich="print('rich of the script')",
    )
    plain, traced = both(["program.py"], tmp_path)
    assert (traced.status, traced.out) == (plain.status, plain.out)


def test_a_script_may_leave_its_folder_and_its_streams_behind(tmp_path):
    write(
        tmp_path,
        program="""
            import os, sys, tempfile, torch
            folder = tempfile.mkdtemp()
            os.chdir(folder)
            os.rmdir(folder)
            sys.stderr = sys.stdout = None
            sys.path.clear()
            torch.ones(2, dtype=torch.half) @ torch.ones(2)
        """,
    )
    plain, traced = both_forked(["program.py"], tmp_path, options=["--json", "out.json"])
    assert (traced.status, traced.out, plain.err) == (plain.status, plain.out, "")
    assert traced.err.startswith("error[DT") and "internal error" not in traced.err
    assert [f["kind"] for f in read(tmp_path / "out.json")["findings"]] == ["collision"]


# ---------------------------------------------------------------- other processes

PROCESSES = """
    import multiprocessing, os, pickle, sys, threading
    from concurrent.futures import ProcessPoolExecutor
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Squares(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return torch.tensor(float(i)) ** 2

    class Point:
        def __init__(self, x):
            self.x = x

    def double(point):
        return Point(2 * point.x), __name__

    if __name__ == "__main__":
        print("main", sys.modules["__main__"].__file__)
        for context in sys.argv[1:]:
            loader = DataLoader(Squares(), num_workers=1, batch_size=2, multiprocessing_context=context)
            print(context, [batch for batch in loader])
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            print([(point.x, type(point) is Point, name) for point, name in pool.map(double, [Point(1), Point(2)])])
        sys.stdout.flush()
        if os.fork() == 0:
            torch.ones(2, dtype=torch.half) @ torch.ones(2)
        print("child", os.wait()[1])
        results = []
        thread = threading.Thread(target=lambda: results.append(torch.ones(2).half().sum()))
        thread.start(), thread.join()
        print(results, len(pickle.dumps(Point(1))))
"""


@pytest.mark.parametrize("words", ["work.py fork", pytest.param("-m work fork spawn", marks=pytest.mark.exhaustive)])
def test_workers_forked_and_spawned(tmp_path, words):
    write(tmp_path, work=PROCESSES)
    plain, traced = both(words.split(), tmp_path, options=["--json", "out.json"])
    assert (traced.status, traced.out) == (plain.status, plain.out)
    assert traced.out.count("\nchild 256") == 1
    frames = [line for line in plain.err.splitlines() if line.startswith(("Traceback", "  ", "RuntimeError"))]
    assert all(line in traced.err.splitlines() for line in frames)
    assert traced.err.count("dtypetrace: no dtype problem found (") == 1  # only the process that started reports
    read(tmp_path / "out.json")


@pytest.mark.exhaustive  # test_ranks runs such jobs
def test_two_ranks_print_one_report_and_write_one_file(tmp_path):
    write(
        tmp_path,
        train="""
            import os, sys, torch, torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            dist.init_process_group("gloo")
            torch.manual_seed(dist.get_rank())  # the weights differ until rank 0's are copied to all
            model = DistributedDataParallel(torch.nn.Linear(2, 2))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            total = torch.tensor([dist.get_rank() + 1])
            dist.all_reduce(total)
            sys.stdout.write(f"total {total.item()} {sys.argv}\\n")
            dist.destroy_process_group()
        """,
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = finish(start([*launcher, "-m", "dtypetrace", "run", "--json", "out.json", "train.py", "-x"], tmp_path))
    assert ended.status == 0, ended.err
    assert ended.out.count("total 3 ['train.py', '-x']") == 2
    assert ended.err.count("dtypetrace: no dtype problem found on 2 ranks; on rank 0 in 1 step") == 1, ended.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "train.py"]
    report = read(tmp_path / "out.json")
    assert report["findings"] == [] and report["meta"]["ranks"] == "0, 1"


# ---------------------------------------------------------------- warnings

WARNINGS = """
    import sys, traceback, warnings
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint

    class Warns(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            warnings.warn("in forward", DeprecationWarning)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            warnings.warn("in backward")
            warnings.warn("in backward, level 2", stacklevel=2)
            return g

    class Module(torch.nn.Module):
        def forward(self, x):
            warnings.warn("old module", DeprecationWarning)
            warnings.warn("old module, level 2", FutureWarning, stacklevel=2)
            return F.softmax(x) + x.mT

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            warnings.warn(f"mine {func.__name__}", DeprecationWarning)
            return super().__torch_function__(func, types, args, kwargs or {})

    def leaf(*shape):
        return torch.ones(*shape, requires_grad=True)

    def scheduler():
        optimizer = torch.optim.SGD([leaf(1)], 1.0)
        torch.optim.lr_scheduler.StepLR(optimizer, 1).step()

    read_only = np.broadcast_to(np.ones(1, dtype=np.float32), (3,))

    CALLS = {
        # raised by C++, for the innermost Python frame
        "T of 3 dimensions": lambda: torch.ones(2, 2, 2).T,
        "range": lambda: torch.range(0, 3),
        "std of one": lambda: torch.ones(1).std(),
        "grad of a non-leaf": lambda: (leaf(1) * 2).grad,
        "complex to real": lambda: torch.ones(1, dtype=torch.complex64).to(torch.float32),
        "uint8 mask": lambda: torch.ones(2)[torch.ones(2, dtype=torch.uint8)],
        "copy construct": lambda: torch.tensor(torch.ones(1)),
        "read-only array": lambda: torch.from_numpy(read_only),
        "sparse": lambda: torch.ones(2, 2).to_sparse_csr(),
        "create_graph": lambda: leaf(2).sum().mul(2).backward(create_graph=True),
        "meshgrid": lambda: torch.meshgrid(torch.ones(2), torch.ones(2)),
        "out of the wrong size": lambda: torch.add(torch.ones(2), 1, out=torch.ones(3)),
        # raised by torch's Python
        "softmax": lambda: F.softmax(torch.ones(2, 2)),
        "Softmax": lambda: torch.nn.Softmax()(torch.ones(2, 2)),
        "mse_loss": lambda: F.mse_loss(torch.ones(2, 1), torch.ones(2)),
        "l1_loss": lambda: F.l1_loss(torch.ones(2), torch.ones(2), size_average=False),
        "upsample": lambda: F.upsample(torch.ones(1, 1, 4), size=8),
        "dropout2d": lambda: F.dropout2d(torch.ones(2, 2)),
        "stft": lambda: torch.stft(torch.ones(100), 16, return_complex=True),
        "storage": lambda: torch.ones(2).storage(),
        "clip_grad_norm": lambda: torch.nn.utils.clip_grad_norm(leaf(1), 1),
        "autocast": lambda: torch.cuda.amp.autocast(),
        "LSTM": lambda: torch.nn.LSTM(2, 2, 1, dropout=0.5),
        "scheduler": scheduler,
        "checkpoint": lambda: checkpoint(lambda x: x * 1, leaf(1), use_reentrant=None),
        "checkpoint without grad": lambda: checkpoint(lambda x: x * 1, torch.ones(1), use_reentrant=True),
        # raised by the user's Python inside torch
        "autograd function": lambda: Warns.apply(leaf(2)).sum().backward(),
        "module": lambda: Module()(torch.ones(2, 2)),
        "subclass": lambda: torch.ones(2).as_subclass(Mine).add(1),
        "hook": lambda: leaf(1).register_hook(lambda g: warnings.warn("in a hook")) and None,
    }

    def report(name, caught):
        for w in caught:
            print(name, w.category.__name__, repr(str(w.message)), w.filename, w.lineno, w.line, w.source)

    def again(call):
        for _ in range(2):
            call()

    def shown():
        for call in CALLS.values():
            again(call)
        seen = globals().get("__warningregistry__", {})
        print(*sorted(str(key) for key in seen if key != "version"), sep="\\n")

    def replaced():
        warnings.showwarning = lambda m, c, file, line, *rest: print(c.__name__, m, file, line, *rest)
        for call in CALLS.values():
            again(call)

    def raised():
        warnings.simplefilter("error")
        for name, call in CALLS.items():
            try:
                call()
            except Warning as warning:
                stack = traceback.extract_tb(warning.__traceback__)
                stack = [(f.filename, f.lineno) for f in stack if "torch" not in f.filename and "dtypetrace" not in f.filename]
                print(name, repr(warning), stack)

    def recorded():
        for mode in ("always", "default", "module", "once"):
            for name, call in CALLS.items():
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter(mode)
                    again(call)
                report(f"{mode}: {name}", caught)

    warnings.warn("past the stack", stacklevel=2)
    warnings.warn("past the stack", DeprecationWarning, stacklevel=4)
    torch.set_warn_always(sys.argv[1] == "every")
    for part in sys.argv[2:]:
        with warnings.catch_warnings():
            print(part, "-" * 20)
            globals()[part]()
"""


@pytest.mark.parametrize(
    "words, filters",
    [
        ("once shown", []),
        pytest.param("every shown replaced", ["-Walways"], marks=pytest.mark.exhaustive),
        pytest.param("every shown", ["-Wignore", "-Wdefault::UserWarning:__main__"], marks=pytest.mark.exhaustive),
        pytest.param("every recorded raised", [], marks=pytest.mark.exhaustive),
    ],
)
def test_warnings_keep_their_category_text_file_and_line(tmp_path, words, filters):
    write(tmp_path, program=WARNINGS)
    plain, traced = both(["program.py", *words.split()], tmp_path, python=filters)
    assert traced.out.splitlines() == plain.out.splitlines()
    assert traced.err.splitlines()[: len(plain.err.splitlines())] == plain.err.splitlines()
    assert traced.status == plain.status == 0
