"""Feature extractors: from candidates to matrices a cost model learns from.

Features by store: Zheng et al., "Ansor" (OSDI 2020), appendix B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arith.affine import Affine
from ...ir import IRModule
from ...runtime.arrays.ndarray import NDArray, array
from ...tir import PrimFunc
from .columns import NUM_FEATURES, ColumnAccess, ColumnStore, Touched, store_features
from .forms import ColumnForm, ColumnRest, ColumnTerm
from .probes import probe
from .program import Program, StoreInfo, extract_program
from ..utils import MethodNotDefinedError
from ...support.sequences import of_kind

if TYPE_CHECKING:
    from ..search_strategy import MeasureCandidate
    from ..task import Task

__all__ = [
    "FeatureExtractor",
    "PerStoreFeature",
    "PyFeatureExtractor",
    "RandomFeatureExtractor",
    "concrete_store",
    "module_features",
]

Array = np.ndarray[Any, Any]
_WORKLOADS = ("softmax", "max|min", "add", "batch_matmul", "matmul", "depthwise", "winograd", "conv2d")


class FeatureExtractor:
    """Subclass and define ``extract_from(context, candidates) -> [matrix per candidate]``."""

    kind = ""

    def extract_from(self, context: Task, candidates: Sequence[MeasureCandidate]) -> Sequence[NDArray | Array]:
        """One ``[rows, features]`` matrix per candidate, as an array of the runtime or of NumPy."""
        raise MethodNotDefinedError(self, "extract_from")

    @staticmethod
    def create(kind: str, *args: Any, **kwargs: Any) -> FeatureExtractor:
        """``per-store-feature`` or ``random``."""
        if kind == "per-store-feature":
            return PerStoreFeature(*args, **kwargs)
        if kind == "random":
            return RandomFeatureExtractor(*args, **kwargs)
        raise ValueError(f"unknown feature extractor {kind!r}; expected 'per-store-feature'")


PyFeatureExtractor = FeatureExtractor


class RandomFeatureExtractor(FeatureExtractor):
    """Random matrices, for tests."""

    def __init__(self, *, feature_size: int = 30, max_block_num: int = 5, seed: int = 0) -> None:
        self.feature_size = feature_size
        self.max_block_num = max_block_num
        self.random_state = np.random.RandomState(seed)

    def extract_from(self, context: Task, candidates: Sequence[MeasureCandidate]) -> list[NDArray]:
        rows = (self.random_state.randint(1, self.max_block_num + 1) for _ in candidates)
        return [array(self.random_state.rand(count, self.feature_size)) for count in rows]


class PerStoreFeature(FeatureExtractor):
    """164 numbers for each stored buffer (172 with the workload one-hot)."""

    kind = "per-store-feature"

    def __init__(
        self,
        buffers_per_store: int = 5,
        arith_intensity_curve_num_samples: int = 10,
        cache_line_bytes: int = 64,
        extract_workload: bool = False,
    ) -> None:
        if (buffers_per_store, arith_intensity_curve_num_samples, cache_line_bytes) != (5, 10, 64):
            raise ValueError("only buffers_per_store=5, arith_intensity_curve_num_samples=10, cache_line_bytes=64")
        self.extract_workload = extract_workload
        self.feature_vector_length = NUM_FEATURES + (8 if extract_workload else 0)

    def extract_from(self, context: Task, candidates: Sequence[MeasureCandidate]) -> list[NDArray]:
        gpu = context.target is not None and "gpu" in context.target.keys
        extra = _workload_row(context.mod) if self.extract_workload and context.mod is not None else None
        results = []
        for candidate in candidates:
            matrix = module_features(candidate.sch.mod, gpu)
            if extra is not None:
                matrix = np.concatenate([matrix, np.tile(extra, (len(matrix), 1))], axis=1)
            results.append(array(matrix))
        return results


def _workload_row(mod: IRModule) -> Array:
    from ..analysis import blocks as ba

    names = [
        p.realize.block.name_hint.lower()
        for f in mod.functions.values()
        if isinstance(f, PrimFunc)
        for p in ba.places(f)
    ]
    row = np.zeros(8, dtype="float32")
    for name in names:
        for index, pattern in enumerate(_WORKLOADS):
            if any(p in name for p in pattern.split("|")):
                row[index] = 1.0
                break
    return row


def module_features(mod: IRModule, gpu: bool = False) -> Array:
    """The rows of one scheduled module."""
    from ..analysis.schedules import remove_weight_layout_rewrite

    mod = remove_weight_layout_rewrite(mod)
    program = extract_program(of_kind(mod.functions.values(), PrimFunc))
    touched, rows = Touched(), {}
    buffers: dict[int, int] = {}
    for store in program.stores:
        column = concrete_store(program, store, gpu, buffers)
        # A buffer stored to twice keeps its place and the later store's features.
        rows[id(store.buffer)] = store_features(column, touched, 1)[0]
    return np.array(list(rows.values()), dtype="float32").reshape(len(rows), NUM_FEATURES)


def concrete_store(program: Program, store: StoreInfo, gpu: bool, buffers: dict[int, int] | None = None) -> ColumnStore:
    """One store of one concrete program, as columns of length one; ``buffers`` numbers the buffers of the program."""
    if buffers is None:
        buffers = {}
    loops = [program.loops[i] for i in store.loops]
    position = {loop.var: i for i, loop in enumerate(loops)}
    sizes = {i: float(loop.extent) for i, loop in enumerate(loops)}

    def column(form: Affine[int]) -> ColumnForm:
        if gpu:
            return probe(form, position, sizes)
        terms = []
        for t in form.terms:
            at = position.get(t.var)
            if at is not None:
                left = -(-loops[at].extent // t.lower)
                width = float(min(t.extent, left) if t.extent else left)
                terms.append(ColumnTerm(float(t.coef), at, 1, width, t.coef >= 0))
        rests = [ColumnRest(float(r.coef), r.op, [column(f) for f in r.forms], float(r.divisor)) for r in form.rests]
        return ColumnForm(float(form.const), terms, rests)

    kinds: dict[str, tuple[float, float, float]] = {}
    unroll = 0
    for loop in loops:
        unroll = loop.unroll or unroll
        tag = "vthread.x" if loop.kind.startswith("vthread") else loop.kind
        num, prod, _ = kinds.get(tag, (0.0, 1.0, 0.0))
        kinds[tag] = (num + 1, prod * loop.extent, float(loop.extent))
    accesses = [
        ColumnAccess(
            buffers.setdefault(id(a.buffer), len(buffers)),
            a.buffer.name,
            a.itemsize,
            a.kind,
            [float(x) for x in a.shape()],
            [[column(f) for f in ix] for ix in a.indices],
        )
        for a in store.accesses
    ]
    shape = accesses[0].shape
    depth = len(store.alloc_loops) if store.alloc_loops is not None else 0
    alloc = (float(np.prod(shape)), accesses[0].itemsize, depth)
    return ColumnStore(
        store.loops,
        [float(loop.extent) for loop in loops],
        accesses,
        store.ops,
        [(column(f), 1) for f in store.index_forms],
        alloc,
        float(unroll),
        1,
        1,
        kinds,
        gpu,
    )
