"""Blocks as units: blockize, tensorize, annotations, marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from ..rv import BlockRV, LoopRV
from .arguments import Arguments, as_loop, as_str
from ..primitives.marks import Annotate, EnterPostproc, Unannotate
from ..primitives.rule import ApplyRule
from ..primitives.blockize import Blockize
from ..primitives.tensorize import Tensorize

if TYPE_CHECKING:
    from ..instruction import Argument

__all__ = ["BlockMethods"]


class BlockMethods(Arguments):
    """Blocks as units: blockize, tensorize, annotations, marks."""

    def blockize(self, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True) -> BlockRV:
        """Make a block of the subtree at a loop, or of neighbouring blocks.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> i, j = sch.get_loops("B")
        >>> block = sch.blockize(j)
        >>> print(outline(sch, "B_o"))
        for i in range(16):
            with T.block("B_o"):
                vi_o = T.axis.spatial(16, i)
                vj_o = T.axis.spatial(1, 0)
                for j in range(8):
                    with T.block("B"):
                        vj_i = T.axis.spatial(8, j)
                        B[vi_o, vj_i] = A[vi_o, vj_i] * T.float32(2.0)
        """
        value: Any = [self._block(b) for b in target] if isinstance(target, (list, tuple)) else as_loop(target)
        return self._do(Blockize(value, preserve_unit_iters))[0]

    def tensorize(self, block_or_loop: BlockRV | LoopRV, tensor_intrin: str, preserve_unit_iters: bool = True) -> None:
        """Replace a block, or the subtree at a loop, by a tensor intrinsic that computes the same.

        >>> from relaxish.script import tir as T
        >>> @T.prim_func
        ... def desc(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        ...     with T.block("root"):
        ...         T.reads(A[0:8])
        ...         T.writes(B[0:8])
        ...         for i in range(8):
        ...             with T.block("double"):
        ...                 v = T.axis.spatial(8, i)
        ...                 B[v] = A[v] * 2.0
        >>> @T.prim_func
        ... def impl(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        ...     with T.block("root"):
        ...         T.reads(A[0:8])
        ...         T.writes(B[0:8])
        ...         T.evaluate(T.call_extern("int32", "double8", A.data, B.data))
        >>> from relaxish.tir import TensorIntrin
        >>> made = TensorIntrin.register("docs.double8", desc, impl, override=True)
        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> i, j = sch.get_loops("B")
        >>> sch.tensorize(j, "docs.double8")
        >>> print(outline(sch, "B_o"))
        for i in range(16):
            with T.block("B_o"):
                vi_o = T.axis.spatial(16, i)
                vj_o = T.axis.spatial(1, 0)
                A_1 = T.match_buffer(A[vi_o, 0:8], (8,))
                B_1 = T.match_buffer(B[vi_o, 0:8], (8,))
                T.call_extern("int32", "double8", A_1.data, B_1.data)
        """
        target = self._block_or_loop(block_or_loop)
        self._do(Tensorize(target, as_str(tensor_intrin, "tensor_intrin"), preserve_unit_iters))

    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Argument) -> None:
        """Attach a value under a key.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.annotate(sch.get_loops("B")[0], "pragma_auto_unroll_max_step", 16)
        >>> print(outline(sch, "B"))
        for i in T.serial(16, annotations={"pragma_auto_unroll_max_step": 16}):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        self._do(Annotate(self._block_or_loop(block_or_loop), as_str(ann_key, "ann_key"), ann_val))

    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        """Remove an annotation.

        >>> from relaxish.testing.examples import Schedule, chain, outline
        >>> sch = Schedule(chain)
        >>> loop = sch.get_loops("B")[0]
        >>> sch.annotate(loop, "pragma_auto_unroll_max_step", 16)
        >>> print(outline(sch, "B"))
        for i in T.serial(16, annotations={"pragma_auto_unroll_max_step": 16}):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
        >>> sch.unannotate(loop, "pragma_auto_unroll_max_step")
        >>> print(outline(sch, "B"))
        for i, j in T.grid(16, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        """
        self._do(Unannotate(self._block_or_loop(block_or_loop), as_str(ann_key, "ann_key")))

    def enter_postproc(self) -> None:
        """Mark in the trace where post-processing begins.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> sch.enter_postproc()
        >>> sch.unroll(sch.get_loops("B")[1])
        >>> sch.trace.as_python(remove_postproc=True)
        []
        """
        self._do(EnterPostproc())

    def apply_rule(self, rule: str, options: dict[str, Any]) -> None:
        """Let a registered whole-function rule schedule the function; the first step of a trace, if used at all."""
        self._do(ApplyRule(as_str(rule, "rule"), dict(options)))
