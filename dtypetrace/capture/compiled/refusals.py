"""A call that Dynamo refused while it compiled: told like any other, with both operands and their births.

Dynamo tries each call with fake tensors before it compiles it. The exception's traceback holds the graph so far, with
the program's line of each call. So births are followed through it, by the same rules as through calls that ran.
"""

from __future__ import annotations

from types import FrameType

from ...tables import refusals
from ..calls import op_name
from ..refused_calls import Scene, record
from ..session import Session
from ..signatures import arguments_of
from . import torch_private
from .followed import Followed


def compiling(recorder: Session, frame: FrameType, error: BaseException) -> None:
    """A region has raised, in torch's ``frame``. Records the refusal, if Dynamo refused a call because of a dtype."""
    if not isinstance(error, Exception) or (node := torch_private.refused_node(error)) is None:
        return
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    followed = Followed(recorder, frame, torch_private.given(error))
    for other in node.graph.nodes:
        if other is node:
            break
        followed.made(other)
    func, args, kwargs = followed.call(node)
    meaning = refusals.recognise(str(first), type(first).__name__, op_name(func))
    if meaning is None:
        return
    place = followed.place(node)
    scene = Scene(op_name(func), None, recorder.phase(followed.thread, place), followed.thread.module, place)
    if scene.phase == "other":
        scene = Scene(scene.op, None, "forward", scene.module, place)
    record(recorder, followed.thread, meaning, scene, list(arguments_of(func, args, kwargs)), error)
