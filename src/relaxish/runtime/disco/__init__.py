"""Disco: one controller, many workers that run the same model on parts of the data.

``ThreadedSession(2)`` or ``ProcessSession(2)`` starts workers, ``SocketSession`` those of several machines;
``session.load_vm_module(path)["main"](x)`` runs a model on all of them, whose ``R.ccl`` operations are exchanges between
them.
"""

from .process import ProcessSession
from .session import DModule, DPackedFunc, DRef, Session, ThreadedSession
from .sockets import SocketSession

__all__ = ["DModule", "DPackedFunc", "DRef", "ProcessSession", "Session", "SocketSession", "ThreadedSession"]
