"""Operators without a converter, taken apart by PyTorch itself into those that have one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
import torch

from ...support.errors import OpNotImplemented
from ...support.log import get_logger

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["decompose", "has_parts"]

_log = get_logger("frontend.torch")
# A decomposition may hold operators that are to be taken apart in turn; none nests deeper than this.
_ROUNDS = 8


def decompose(program: ExportedProgram, gaps: Callable[[Any], set[Any]]) -> ExportedProgram:
    """Replace operators by their decompositions until ``gaps(program)`` holds none that has one.

    Only operators in ``gaps`` are touched: converters of whole operators (attention, norms) make better programs than
    their parts. The program given stays as it is. Raises OpNotImplemented where PyTorch fails.

    Before and after (``aten.lstm.input`` has no converter)::

        aten.lstm.input(x, ...)        aten.unbind.int(x), aten.linear(...), aten.sigmoid(...), aten.mul.Tensor(...), ...
    """
    from torch._decomp import get_decompositions
    from torch.export import default_decompositions

    table = default_decompositions()
    for _ in range(_ROUNDS):
        missing = gaps(program)
        chosen = {op: table[op] for op in missing if op in table}
        # PyTorch's compiler knows how to take apart more than an export does.
        chosen |= get_decompositions([op for op in missing if op not in chosen])
        # What PyTorch itself only ever runs as other operators.
        chosen |= {op: op.decompose for op in missing if op not in chosen and _is_composite(op)}
        if not chosen:
            break
        _log.info("decomposed by PyTorch: %s", ", ".join(sorted(map(str, chosen))))
        with warnings.catch_warnings():
            # PyTorch's own use of what it deprecates is not the user's concern.
            warnings.simplefilter("ignore", FutureWarning)
            try:
                program = program.run_decompositions(chosen)
            except Exception as err:
                reason = (str(err).strip().splitlines() or [""])[0]
                names = ", ".join(sorted(map(str, chosen)))
                raise OpNotImplemented(f"PyTorch fails to take apart {names}: {type(err).__name__}: {reason}") from err
    return program


def has_parts(op: torch._ops.OpOverload) -> bool:
    """Whether PyTorch knows how to take an operator apart."""
    from torch._decomp import get_decompositions
    from torch.export import default_decompositions

    return op in default_decompositions() or bool(get_decompositions([op])) or _is_composite(op)


def _is_composite(op: torch._ops.OpOverload) -> bool:
    return hasattr(op, "_can_decompose") and bool(op._can_decompose())
