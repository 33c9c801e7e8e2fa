"""InjectSoftwarePipeline: the bounds its statements carry, and loops shorter than the pipeline."""

import numpy as np
import pytest

from relaxish import interp, tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.script import tir as T


def twice_plus_one(count, options):
    @T.prim_func(private=True)
    def func(A: T.Buffer((count, 4), "float32"), C: T.Buffer((count, 4), "float32")):
        for i in T.serial(count, annotations=options):
            with T.block("compute"):
                T.reads(A[i, 0:4])
                T.writes(C[i, 0:4])
                B = T.alloc_buffer((4,), scope="shared")
                with T.block(""):
                    T.reads(A[i, 0:4])
                    T.writes(B[0:4])
                    for j in range(4):
                        B[j] = A[i, j] * T.float32(2)
                with T.block(""):
                    T.reads(B[0:4])
                    T.writes(C[i, 0:4])
                    for j in range(4):
                        C[i, j] = B[j] + T.float32(1)

    return func


def pipelined(count, stages, is_async=False):
    options = {"software_pipeline_stage": stages, "software_pipeline_order": [0, 1]}
    if is_async:
        options["software_pipeline_async_stages"] = [0]
    return tir.transform.InjectSoftwarePipeline()(IRModule({"main": twice_plus_one(count, options)}))["main"]


def predicates(func):
    found = []
    tir.stmt_functor.post_order_visit(
        func.body, lambda node: found.append(str(node.predicate)) if isinstance(node, tir.BlockRealize) else None
    )
    return [text for text in found if text != "T.bool(True)"]


@pytest.mark.parametrize("is_async", [False, True])
def test_statements_say_which_iterations_there_are(is_async):
    func = pipelined(16, [0, 1], is_async)
    assert predicates(func) == ["i + 1 < 16", "i + 1 - 1 < 16"]
    assert predicates(tir.transform.Simplify()(IRModule({"main": func}))["main"]) == []


def test_a_loop_of_no_iterations_is_nothing():
    sequences = []
    tir.stmt_functor.post_order_visit(
        pipelined(1, [0, 1]).body, lambda node: sequences.append(node) if isinstance(node, tir.SeqStmt) else None
    )
    prologue, body, epilogue = (part.block for part in sequences[-1].seq)
    assert_structural_equal(body, tir.Block([], [], [], "", tir.Evaluate(0)))
    assert [len(block.writes) for block in (prologue, epilogue)] == [1, 1]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("stages", [[0, 1], [0, 2], [0, 3]])
def test_pipelines_of_any_length_compute_the_same(count, stages):
    a = np.random.default_rng(count).standard_normal((count, 4)).astype("float32")
    c = np.zeros((count, 4), "float32")
    interp.run_prim_func(pipelined(count, stages), [a, c])
    np.testing.assert_array_equal(c, a * 2 + 1)
