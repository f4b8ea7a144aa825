"""Where a run is: the threads that are watched, what runs in each of them, and the place and phase of a call."""

from __future__ import annotations

from threading import get_ident
from types import FrameType

from . import private
from .autograd_nodes import Nodes
from .running import Thread
from .stacks import Places, UserCode
from .steps import Steps

_current_graph_task = private.current_graph_task_id


class Clock:
    """The state of the watched threads. ``user`` decides which files are the user's own and which a library's."""

    def __init__(self, user: UserCode | None = None) -> None:
        self.places = Places()
        self.user = user or UserCode()
        self.stepping = Steps(self.places)
        self.running_steps = self.stepping.running
        self.nodes = Nodes()
        self.thread = get_ident()
        self.threads: dict[int, Thread] = {}
        self.backward_place = -1
        self.default_place = -1

    def begin(self) -> None:
        """Starts watching the calling thread."""
        self.thread = get_ident()
        thread = self.threads[self.thread] = Thread()
        thread.sequence = self.nodes.begin()

    def thread_state(self) -> Thread:
        ident = get_ident()
        thread = self.threads.get(ident)
        if thread is None:
            thread = self.threads[ident] = Thread()
        return thread

    def place(self, thread: Thread, frame: FrameType | None) -> int:
        """Number of the place where ``frame`` is, continued in the enclosing module's call."""
        modules = thread.modules
        if self.running_steps:
            step = self.running_steps[-1]
            if step.depth == len(modules) and self.places.only_hidden(frame, step.frame):
                return step.place
        while modules:
            top = modules[-1]
            place = self.places.here(frame, top[2], top[3])  # frame, place
            if place != -2:
                return place
            modules.pop()  # left by an exception that no hook saw (KeyboardInterrupt)
        # a device's thread of the engine has no frames below a hook: they are those of the call of backward
        engines = _current_graph_task() != -1 and get_ident() != self.thread
        return self.places.here(frame, outer=self.backward_place if engines else -1)

    def phase(self, thread: Thread, place: int) -> str:
        """The phase of an op that the engine does not run: recompute, backward (Python code in it), optimizer, forward
        or other."""
        modules = thread.modules
        if _current_graph_task() != -1:
            return "recompute" if modules and modules[-1].in_backward else "backward"
        if self.running_steps and self.stepping.own_work(len(modules), place):
            return "optimizer"
        return "forward" if modules else "other"
