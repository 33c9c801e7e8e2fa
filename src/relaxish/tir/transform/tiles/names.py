"""The annotations by which tile programs say what their blocks and loops are.

A kernel is a nest of loops bound to ``blockIdx``, around one opaque block annotated :data:`KERNEL`. Inside, every tile
operator is a loop nest around one block annotated :data:`OP`, loops of independent iterations are annotated
:data:`PARALLEL`, and loops whose copies run ahead :data:`STAGES`. Statements run in program order for the whole block.
"""

from __future__ import annotations

__all__ = [
    "ATOMIC", "CLEAR", "EVICTIONS", "FRAGMENT", "GROUP", "KERNEL", "L2", "LAYOUT", "LOOPS", "OP", "OPTIONS", "ORDER", "PARALLEL", "POLICY",
    "REDUCER", "SHARED", "STAGE", "STAGES", "SWIZZLE", "SYNC", "TILE_SCOPES", "VAR", "WIDTH",
]  # fmt: skip

KERNEL = "tile.kernel"
"""Annotation of a kernel's block: threads along x, y and z."""
OP = "tile.op"
"""Annotation of a tile operator's block: copy, gemm, gemm_sp, fill, reduce, scan, atomic, finalize, print."""
LOOPS = "tile.loops"
"""Annotation of a tile operator's block: how many of the loops around are its own."""
OPTIONS = "tile.options"
"""Annotation of a tile operator's block: words that a lowering may follow, such as disable_tma."""
EVICTIONS = frozenset(("evict_first", "evict_last", "evict_normal"))
"""Those of them that say what the second-level cache is to keep."""
WIDTH = "tile.coalesced_width"
"""Annotation of a copy's block or a parallel loop: elements that a thread accesses at once, at most."""
POLICY = "tile.policy"
"""Annotation of a product's block: how warps share the result (0 square, 1 rows, 2 columns)."""
CLEAR = "tile.clear"
"""Annotation of a product's block whose sum begins at zero."""
ATOMIC = "tile.atomic"
"""Annotation of a block that updates memory which other blocks update, too: add, max, min, and, or, xor,
exch or load, and what it orders beside (``"add:release"``)."""
PARALLEL = "tile.parallel"
"""Annotation of the outermost of some loops with independent iterations: how many loops they are."""
STAGES = "tile.num_stages"
"""Annotation of a loop: how many turns' copies may be under way."""
L2 = "tile.l2_hit_ratio"
"""Annotation of a kernel's block: shares of what is loaded that the second-level cache is to keep, (parameter, ratio)."""
STAGE, ORDER = "tile.stage", "tile.order"
"""Annotations of a pipelined loop: the stage of each of its statements, and its place in a turn."""
GROUP, SYNC = "tile.group", "tile.sync"
"""Annotations of a pipelined loop: statements whose copies are waited for together, and pairs of statements of which the
second waits for the first."""
SWIZZLE = "tile.swizzle"
"""Annotation of a kernel's block: (panel size, 0 for rows or 1 for columns)."""
LAYOUT = "tile.layout"
"""Annotation of a kernel's block: layouts that the program asked for, (number among the block's buffers, index map)."""
REDUCER = "tile.reducer"
"""Annotation of the end of what parallel loops reduce into a fragment: sum, max or min."""

SHARED = ("shared", "shared.dyn")
FRAGMENT = "local.fragment"
VAR = "local.var"
TILE_SCOPES = (*SHARED, FRAGMENT, VAR, "local")
"""Scopes of memory that belongs to one block of threads."""
