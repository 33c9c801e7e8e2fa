"""Every kind of GPU sketch, instruction by instruction, and the program that fixed decisions make of it.

``golden/<name>.json`` has the decisions, ``golden/<name>.txt`` the instructions and the program; ``--update-golden``
writes what is new.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_workloads import conv16, matmul16

from relaxish import te, tir
from relaxish.meta_schedule.schedule_rule import (
    AutoBind, AutoInline, CrossThreadReduction, MultiLevelTiling, MultiLevelTilingTensorCore, MultiLevelTilingWithIntrin,
    ReuseType,
)  # fmt: skip
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.space_generation import generate_design_space, get_rules
from relaxish.support.errors import InternalError
from relaxish.target import Target
from relaxish.tir.schedule import Trace
from relaxish.tir.tensor_intrin import mma_m16n8k8
from relaxish.tir.tensor_intrin.cuda import get_wmma_intrin_group
from relaxish.tir.tensor_intrin.dot_product_common import DP4A_S8S8S32_INTRIN

TARGET = Target("nvidia/nvidia-a100")
GOLDEN = Path(__file__).parent / "golden"
BINDS = ["blockIdx.y", "blockIdx.x", "threadIdx.y"]
LENGTHS = [1, 2, 4, 8]


def wmma(in_dtype="float16", out_dtype="float32", trans_b=False, scope="shared.dyn", pipeline=False):
    group = get_wmma_intrin_group(scope, scope, in_dtype, out_dtype, trans_b)
    tiling = MultiLevelTilingTensorCore(
        [group], "SSSRRSRS", BINDS, 4, LENGTHS, ReuseType("must", (4,), scope), ReuseType("must", (2,), scope), pipeline
    )
    return [tiling, *get_rules("cuda", AutoInline)]


def mma(out_dtype="float32", pipeline=True):
    group = mma_m16n8k8.get_mma_intrin_group("global", out_dtype)
    tiling = MultiLevelTilingTensorCore(
        [group], "SSSRRSRS", BINDS, 4, LENGTHS, ReuseType("must", (4,), "shared.dyn"), ReuseType("no", (), ""), pipeline
    )
    return [tiling, *get_rules("cuda", AutoInline)]


def dp4a():
    return [
        MultiLevelTilingWithIntrin(
            DP4A_S8S8S32_INTRIN,
            "SSSRRSRS",
            ["blockIdx.x", "vthread.x", "threadIdx.x"],
            64,
            LENGTHS,
            ReuseType("must", (4,), "shared"),
            ReuseType("must", (3,), "local"),
        )
    ]


def plain(*kinds):
    return get_rules("cuda", kinds)


def scaled(*shape):
    x = te.placeholder(shape, "float32", name="X")
    return [x, te.compute(shape, lambda *i: x(*i) * 2.0, name="Y")]


def int8_product(n, m, k):
    """``C[i, j] = sum(A[i, r] B[j, r])``, as dot products of four bytes want it."""
    a, b = te.placeholder((n, k), "int8", name="A"), te.placeholder((m, k), "int8", name="B")
    r = te.reduce_axis((0, k), name="r")
    return [
        a,
        b,
        te.compute((n, m), lambda i, j: te.sum(a[i, r].astype("int32") * b[j, r].astype("int32"), axis=r), name="C"),
    ]


CASES = {
    "tiled_matmul_relu": (lambda: te_workload.matmul_relu(96, 64, 80), plain(MultiLevelTiling, AutoInline), 0),
    "tiled_batch_matmul": (lambda: te_workload.batch_matmul_nkkm(3, 32, 64, 48), plain(MultiLevelTiling), 2),
    "tiled_transposed_conv": (
        lambda: te_workload.conv2d_transpose_nhwc(1, 5, 5, 16, 24, 4, 2, 1),
        plain(MultiLevelTiling, AutoInline),
        0,
    ),
    "tiled_pipeline": (lambda: te_workload.matmul_relu(96, 64, 80), plain(MultiLevelTiling, AutoInline), 1),
    "norm_in_threads": (lambda: te_workload.norm_bmn(2, 96, 64), plain(CrossThreadReduction, AutoBind), 1),
    "softmax_in_threads": (
        lambda: te_workload.softmax_mn(48, 160),
        plain(CrossThreadReduction, AutoInline, AutoBind),
        3,
    ),
    "bound_by_elements": (lambda: scaled(24, 40), plain(AutoBind), 0),
    "bound_with_a_loop": (lambda: scaled(640, 1024), plain(AutoBind), 0),
    "wmma_relu": (lambda: te_workload.matmul_relu(160, 96, 64, "float16", "float32"), wmma(), 0),
    "wmma_transposed": (lambda: matmul16(64, 96, 64, "float16"), wmma(out_dtype="float16", trans_b=True), 0),
    "wmma_int8": (lambda: te_workload.matmul(64, 64, 96, "int8", "int32"), wmma("int8", "int32", scope="shared"), 0),
    "wmma_padded": (lambda: te_workload.matmul_relu(100, 41, 50, "float16", "float32"), wmma(), 0),
    "wmma_batch": (lambda: te_workload.batch_matmul_nkkm(3, 32, 64, 48, "float16", "float32"), wmma(), 0),
    "wmma_conv": (
        lambda: te_workload.conv2d_nhwc(1, 12, 12, 32, 48, 3, 1, 1, in_dtype="float16", out_dtype="float32"),
        wmma(),
        0,
    ),
    "wmma_conv_stride": (
        lambda: te_workload.conv2d_nhwc(2, 16, 16, 16, 32, 3, 2, 1, in_dtype="float16", out_dtype="float32"),
        wmma(),
        0,
    ),
    "wmma_conv_1x1": (
        lambda: te_workload.conv2d_nhwc(1, 8, 8, 32, 64, 1, 1, 0, in_dtype="float16", out_dtype="float32"),
        wmma(),
        0,
    ),
    "wmma_pipeline": (lambda: te_workload.matmul(64, 96, 128, "float16", "float32"), wmma(pipeline=True), 0),
    "mma": (lambda: matmul16(96, 128, 64, "float16"), mma("float16", False), 0),
    "mma_pipeline": (lambda: te_workload.matmul_relu(64, 96, 128, "float16", "float32"), mma(), 0),
    "mma_conv": (lambda: conv16(8, 32, 64), mma(), 0),
    "dp4a": (lambda: int8_product(48, 64, 80), dp4a(), 2),
}


def sketch_of(name):
    workload, rules, index = CASES[name]
    func = te.create_prim_func(workload())
    return func, generate_design_space("cuda", func, TARGET, None, rules)[index]


def decided(name, trace):
    """The trace with the decisions on file; those it has are put there where none are."""
    path = GOLDEN / f"{name}.json"
    sampled = [inst for inst in trace.insts if inst in trace.decisions]
    if not path.exists():
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(json.dumps([plain_numbers(trace.decisions[inst]) for inst in sampled]) + "\n")
    return Trace(trace.insts, dict(zip(sampled, json.loads(path.read_text()), strict=True)))


def plain_numbers(decision):
    return [int(x) for x in decision] if isinstance(decision, (list, tuple)) else int(decision)


@pytest.mark.parametrize("name", sorted(CASES))
def test_sketches_are_those_on_file(name, golden):
    func, sketch = sketch_of(name)
    sch = tir.Schedule(func)
    decided(name, sketch.trace).apply_to_schedule(sch, remove_postproc=False)
    golden(name, f"{sch.trace}\n{sch.mod['main'].script()}")


@pytest.mark.parametrize(
    ("target", "depths"), [("nvidia/geforce-rtx-2080", []), ("nvidia/nvidia-a100", [5, 4]), ("rocm", [])]
)
@pytest.mark.parametrize("reads", [1, 2])
def test_copies_in_the_background(target, depths, reads):
    """Where there are such copies, the steps of a product also come as pipelines of several depths; other loops do not."""
    work = te_workload.matmul(64, 64, 64) if reads == 2 else te_workload.max_pool2d_nchw(1, 16, 16, 8, 1)
    func = te.create_prim_func(work)
    found = generate_design_space("cuda", func, Target(target), None, plain(MultiLevelTiling))
    stages = []
    for sketch in found:
        notes = {i.attrs[0]: i for i in sketch.trace.insts if i.kind.name == "Annotate"}
        assert len({k for k in notes if k.startswith("software_pipeline")}) in (0, 3)
        if "software_pipeline_stage" in notes:
            stages.append([int(v) for v in notes["software_pipeline_stage"].inputs[1]])
    assert stages == [[0, 0, depth - 2] for depth in depths if reads == 2]
    assert len(found) == len(stages) + 1


def test_rules_for_tensor_cores_refuse_what_they_cannot_bind_or_stage():
    group = get_wmma_intrin_group("shared", "shared", "float16", "float32", False)
    read, write = ReuseType("must", (4,), "shared"), ReuseType("must", (2,), "shared")
    with pytest.raises(InternalError, match="threadIdx.x"):
        MultiLevelTilingTensorCore([group], "SSSRRSRS", ["blockIdx.x", "threadIdx.x"], 4, LENGTHS, read, write)
    for other in (None, ReuseType("may", (2,), "shared"), ReuseType("must", (2,), "local")):
        with pytest.raises(ValueError, match="Shared memory write reuse"):
            MultiLevelTilingTensorCore([group], "SSSRRSRS", BINDS, 4, LENGTHS, read, other)


def test_sketches_come_in_the_order_of_their_groups():
    groups = [get_wmma_intrin_group("shared", "shared", "float16", "float32", trans) for trans in (False, True)]
    rule = MultiLevelTilingTensorCore(
        groups, "SSSRRSRS", BINDS, 4, LENGTHS, ReuseType("must", (4,), "shared"), ReuseType("must", (2,), "shared")
    )
    func = te.create_prim_func(te_workload.matmul(32, 32, 32, "float16", "float32"))
    found = generate_design_space("cuda", func, TARGET, None, [rule])
    marks = [
        str(inst.inputs[1])
        for sketch in found
        for inst in sketch.trace.insts
        if inst.kind.name == "Annotate" and inst.attrs[0] == "meta_schedule.auto_tensorize"
    ]
    assert [mark.endswith("_trans") for mark in marks if mark.startswith("wmma_sync")] == [False, True]
