"""When two workloads count as the same: three notions, each a hash and an equality."""

from __future__ import annotations


from ...ir import IRModule, structural_equal, structural_hash
from ...ir.functor import Mutator
from ...tir import Block, PrimFunc
from ...tir.stmt import AllocateConst, Stmt

__all__ = ["ModuleEquality"]


class _DropConstants(Mutator):
    """Replaces embedded tensors by their type, so that contents do not count."""

    def visit_AllocateConst(self, node: AllocateConst) -> AllocateConst:
        node = self.default_visit(node)
        return node.with_fields(data=None) if "data" in node._fields else node


def _without_data(mod: IRModule) -> IRModule:
    functions = {gv: (_DropConstants().visit(f) if isinstance(f, PrimFunc) else f) for gv, f in mod.functions.items()}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


class ModuleEquality:
    """``structural`` | ``ignore-ndarray`` | ``anchor-block``."""

    KINDS = ("structural", "ignore-ndarray", "anchor-block")

    def __init__(self, kind: str = "structural") -> None:
        if kind not in self.KINDS:
            raise ValueError(f"unknown module equality {kind!r}; expected one of {', '.join(self.KINDS)}")
        self.kind = kind

    def _view(self, mod: IRModule) -> Stmt | IRModule:
        if self.kind == "structural":
            return mod
        if self.kind == "anchor-block":
            anchor = self._anchor(mod)
            if anchor is not None:
                return anchor
        return _without_data(mod)

    @staticmethod
    def _anchor(mod: IRModule) -> Block | None:
        from ...tir.analysis import find_anchor_block

        found = find_anchor_block(mod)
        return found if isinstance(found, Block) else getattr(found, "stmt", None)

    def hash(self, mod: IRModule) -> int:
        """Equal modules have equal hashes."""
        view = self._view(mod)
        return structural_hash(view, map_free_vars=isinstance(view, Block))

    def equal(self, lhs: IRModule, rhs: IRModule) -> bool:
        """Whether one tuning result serves both."""
        if lhs is rhs:
            return True
        a, b = self._view(lhs), self._view(rhs)
        if isinstance(a, Block) != isinstance(b, Block):
            return False
        return structural_equal(a, b, map_free_vars=isinstance(a, Block))
