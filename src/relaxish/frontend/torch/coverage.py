"""Which operators of PyTorch's core set the importer takes, and how: ``python -m relaxish.frontend.torch.coverage``."""

from __future__ import annotations

import torch

# Importing the importer fills the table of converters.
from .exported_program import name_of
from .decompose import has_parts
from .table import find

__all__ = ["core_operators", "how", "table"]


def core_operators() -> list[torch._ops.OpOverload]:
    """The overloads that the installed PyTorch tags as its core set, by name."""
    # ``dir(torch.ops.aten)`` knows only what has been used.
    names = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    found = []
    for name in names:
        base, _, overload = name.partition(".")
        found.append(getattr(getattr(torch.ops.aten, base), overload or "default"))
    return sorted((op for op in found if torch.Tag.core in op.tags), key=name_of)


def how(operator: torch._ops.OpOverload) -> str:
    """ "converter", "taken apart" by PyTorch into others, or "refused"."""
    if find(name_of(operator)) is not None:
        return "converter"
    return "taken apart" if has_parts(operator) else "refused"


def table() -> str:
    """The page: every operator with how it is taken."""
    rows = [(name_of(operator), how(operator)) for operator in core_operators()]
    counts = {kind: sum(found == kind for _, found in rows) for kind in ("converter", "taken apart", "refused")}
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    lines = [
        "# Operators of PyTorch's core set",
        "",
        f"What `from_exported_program` takes of the {len(rows)} overloads that PyTorch {torch.__version__.partition('+')[0]}",
        f"tags as its core set: {summary}. *Converter*: one function of `frontend/torch`; *taken apart*: PyTorch's own",
        "decomposition makes operators of it that have converters. Operators outside of the set are taken in the same two",
        "ways; programs that use others are refused with an error that lists them.",
        "",
        "Complex tensors live inside of a program only, as two real ones: transforms, products, sums, quotients, sizes,",
        "conjugates and moves of elements. Draws by chance are PyTorch's in distribution, not number by number. Results of",
        "`nonzero` and of masks have a size that the run decides. `as_strided` needs known sizes.",
        "",
        "Made by `python -m relaxish.frontend.torch.coverage`.",
        "",
        "| operator | how |",
        "| --- | --- |",
        *(f"| `{name}` | {kind} |" for name, kind in rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
