"""Finding blocks and loops."""

from __future__ import annotations

from ..rv import BlockRV, LoopRV
from .arguments import Arguments, BlockArg, as_str
from ..primitives.queries import GetBlock, GetChildBlocks, GetConsumers, GetLoops, GetOutputBlocks, GetProducers

__all__ = ["QueryMethods"]


class QueryMethods(Arguments):
    """Finding blocks and loops."""

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block called ``name``.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> block = sch.get_block("B")
        >>> sch.get(block).name_hint
        'B'
        """
        if func_name is None:
            func_name = self.func_working_on.name_hint if self.func_working_on is not None else None
        return self._do(GetBlock(as_str(name, "name"), func_name))[0]

    def get_loops(self, block: BlockArg) -> list[LoopRV]:
        """The loops around ``block``, outermost first.

        >>> from relaxish.testing.examples import Schedule, matmul
        >>> sch = Schedule(matmul)
        >>> [sch.get(loop).loop_var.name for loop in sch.get_loops("C")]
        ['i', 'j', 'k']
        """
        return self._do(GetLoops(self._block(block)))

    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        """The nearest blocks below.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))]
        ['B', 'C']
        """
        return self._do(GetChildBlocks(self._block_or_loop(block_or_loop)))

    def get_producers(self, block: BlockArg) -> list[BlockRV]:
        """The blocks ``block`` depends on.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> [sch.get(b).name_hint for b in sch.get_producers("C")]
        ['B']
        """
        return self._do(GetProducers(self._block(block)))

    def get_consumers(self, block: BlockArg) -> list[BlockRV]:
        """The blocks that depend on ``block``.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> [sch.get(b).name_hint for b in sch.get_consumers("B")]
        ['C']
        """
        return self._do(GetConsumers(self._block(block)))

    def get_output_blocks(self, scope_block: BlockArg) -> list[BlockRV]:
        """The blocks within ``scope_block`` that write to its outside.

        >>> from relaxish.testing.examples import Schedule, chain
        >>> sch = Schedule(chain)
        >>> [sch.get(b).name_hint for b in sch.get_output_blocks("root")]
        ['C']
        """
        return self._do(GetOutputBlocks(self._block(scope_block)))
