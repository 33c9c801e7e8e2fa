"""Not here: importing this says what to write instead."""

from .replacements import instead

raise ImportError(instead("relay.analysis"))
