"""Asynchronous copies with gaps are refused where the copy engine could not do them."""

import pytest

from relaxish import meta_schedule as ms
from relaxish import te, tir
from relaxish.target import Target


def staged(strided: bool):
    """Tiles of four rows, whole or a quarter of each, brought in while the tile before is used."""
    a = te.placeholder((16, 64), "float32", name="A")
    func = te.create_prim_func([a, te.compute((16, 64), lambda i, j: a[i, j] * 2.0, name="B")])
    sch = tir.Schedule(func)
    block = sch.get_block("B")
    tile = sch.cache_read(block, 0, "global.vtcm")
    i, j = sch.get_loops(block)
    outer, rows = sch.split(i, [None, 4])
    if strided:
        quarter, columns = sch.split(j, [4, None])
        sch.reorder(quarter, rows, columns)
        outer = quarter
    sch.compute_at(tile, outer)
    sch.fuse(*sch.get_loops(tile)[-2:])
    sch.annotate(outer, "software_pipeline_stage", [0, 1])
    sch.annotate(outer, "software_pipeline_order", [0, 1])
    sch.annotate(outer, "software_pipeline_async_stages", [0])
    return sch


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("strided", [False, True])
def test_only_dense_copies_pass(strided, merge):
    sch = staged(strided)
    postproc = ms.postproc.DisallowAsyncStridedMemCopy(merge_async_commit_queue_scope=merge)
    space = ms.space_generator.PostOrderApply(sch_rules=[], postprocs=[postproc], mutator_probs={})
    ms.TuneContext(sch.mod, target=Target("hexagon"), space_generator=space, task_name="t").initialize()
    assert postproc.apply(sch) is not strided


def test_copies_are_merged_by_default():
    assert ms.postproc.DisallowAsyncStridedMemCopy().merge_async_commit_queue_scope
