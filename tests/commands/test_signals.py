"""Signals that end a process: the last work is done once, and then the process dies as it would have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
STUCK = """
    import ctypes
    libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(lock)
    print("ready", flush=True)
    libc.pthread_mutex_lock(lock)
"""
ASLEEP = """
    print("ready", flush=True)
    time.sleep(60)
"""


def program(body: str, work: str = "print('work', name, flush=True)", before: str = "") -> str:
    start = f"""
        import os, signal, sys, time
        from dtypetrace.commands import signals
        {before}
        def work(name):
            {work}
        fatal = signals.FatalSignals(work)
        fatal.install()
    """
    return textwrap.dedent(start) + textwrap.dedent(body)


def start(text: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=environment)


def ended(process: subprocess.Popen) -> tuple[int, str]:
    text, _ = process.communicate(timeout=60)
    return process.returncode, text


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGXCPU"])
@pytest.mark.parametrize("waits", [ASLEEP, STUCK], ids=["in Python", "in C"])
def test_the_work_is_done_and_the_process_dies_by_the_signal(waits, name):
    process = start(program(waits))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    assert ended(process) == (-getattr(signal, name), f"work {name}\n")


@pytest.mark.parametrize("waits", [ASLEEP, STUCK], ids=["in Python", "in C"])
def test_work_that_does_not_end_ends_with_the_process(waits):
    process = start(program(waits, "time.sleep(60)", "signals._LIMIT = 1.0"))
    process.stdout.readline()
    began = time.monotonic()
    process.terminate()
    assert ended(process)[0] == -signal.SIGTERM and time.monotonic() - began < 50


def test_a_second_signal_ends_the_process_at_once():
    process = start(program(ASLEEP, "print('work', flush=True); time.sleep(60)", "signals._AGAIN = 0.1"))
    process.stdout.readline()
    process.terminate()
    assert process.stdout.readline() == "work\n"
    time.sleep(1.0)
    process.terminate()
    assert ended(process) == (-signal.SIGTERM, "")


def test_work_that_fails_does_not_keep_the_process():
    process = start(program(ASLEEP, "raise SystemExit(3)"))
    process.stdout.readline()
    process.terminate()
    assert ended(process) == (-signal.SIGTERM, "")


def test_a_signal_waits_while_the_work_is_done_without_it():
    body = """
        with fatal.held():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
            print("done", flush=True)
        print("not reached", flush=True)
    """
    assert ended(start(program(body))) == (-signal.SIGTERM, "done\n")


def test_a_handler_of_the_programs_own_and_an_ignored_signal_stay():
    body = """
        signal.signal(signal.SIGTERM, lambda *a: print("own", flush=True))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        time.sleep(1)
        print("end", flush=True)
    """
    assert ended(start(program(body))) == (0, "own\nend\n")


def test_the_program_finds_the_default_action():
    body = """
        def own(*a): pass
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.signal(signal.SIGTERM, own) is signal.SIG_DFL)
        print(signal.signal(signal.SIGTERM, signal.SIG_DFL) is own, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        import threading
        print(threading.active_count(), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    status, text = ended(start(program(body)))
    assert (status, text.splitlines()) == (-signal.SIGTERM, ["True True", "True True", "1", "work SIGTERM"])


def test_a_forked_child_that_a_signal_ends_prints_nothing():
    body = """
        import multiprocessing, subprocess
        child = os.fork()
        if not child:
            time.sleep(60)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        print(os.waitpid(child, 0)[1])
        for _ in range(40):
            worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            worker.start()
            worker.terminate()  # at once: before the child has reset its handlers
            worker.join()
        other = subprocess.Popen(["sleep", "60"])
        other.terminate()
        print(worker.exitcode, other.wait(), flush=True)
    """
    assert ended(start(program(body))) == (0, "15\n-15 -15\n")


def test_all_is_put_back():
    body = """
        before = signal.signal
        fatal.remove()
        print(signal.signal is not before, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.set_wakeup_fd(-1))
        until = time.monotonic() + 60
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < until:  # the thread ends by itself
            time.sleep(0.01)
        print(len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")) == descriptors, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    count = "descriptors = len(os.listdir('/proc/self/fd'))"
    assert ended(start(program(body, before=count))) == (-signal.SIGTERM, "True True -1\n1 True\n")


def test_the_programs_wakeup_descriptor_stays_in_use():
    """asyncio, for one, has signals written into a socket of its own."""
    body = """
        print(signal.set_wakeup_fd(-1) == other[1], flush=True)
        signal.set_wakeup_fd(other[1])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    before = "other = os.pipe(); os.set_blocking(other[1], False); signal.set_wakeup_fd(other[1])"
    assert ended(start(program(body, before=before))) == (-signal.SIGTERM, "True\nwork SIGTERM\n")


def test_run_reports_before_a_signal_ends_it(tmp_path):
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import os, signal, time
            import torch
            from dtypetrace.commands import signals
            signals._LIMIT = 200.0  # a report takes its time on a busy machine
            try:
                torch.nn.Linear(2, 2).half()(torch.ones(2, 2))
            except RuntimeError:
                pass
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
            """
        )
    )
    command = [sys.executable, "-m", "dtypetrace", "run", "--json", "out.json", "train.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": ROOT}
    )
    assert done.returncode == -signal.SIGTERM and done.stdout == ""
    assert "DT101" in done.stderr and "SIGTERM" in done.stderr, done.stderr
    assert '"DT101"' in (tmp_path / "out.json").read_text()
