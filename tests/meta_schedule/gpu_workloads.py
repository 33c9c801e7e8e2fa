"""Programs and tuning contexts for tests of the search on GPU targets."""

from search_workloads import batch_matmul, conv2d_bias_relu, depthwise, elementwise, max_pool, row_sum

from relaxish import IRModule, te, tir
from relaxish import meta_schedule as ms
from relaxish.meta_schedule.defaults import default_mutators, default_postprocs, default_rules
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target
from relaxish.topi.nn.winograd import _conv2d_winograd_nhwc_impl


def scaled(name, threads=True):
    """A kernel of one loop, called ``name``; without threads, for the host."""
    x = te.placeholder((256,), "float32", name="X")
    func = te.create_prim_func([x, te.compute((256,), lambda i: x[i] * 2.0, name="Y")])
    sch = tir.Schedule(func.with_attr("global_symbol", name))
    if threads:
        block, thread = sch.split(sch.get_loops("Y")[0], [None, 64])
        sch.bind(block, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
    return IRModule({name: sch.mod["main"]})


def matmul16(n, m, k, accumulator):
    """A product of half precision."""
    return te_workload.matmul(n, m, k, "float16", accumulator)


def conv16(size, channels, filters, kernel=3, padding=1):
    """A convolution of half precision, channels last."""
    x = te.placeholder((1, size, size, channels), "float16", name="X")
    y = te.placeholder((kernel, kernel, channels, filters), "float16", name="W")

    def inside(n, i, j, c):
        bounds = tir.all(i >= padding, i < size + padding, j >= padding, j < size + padding)
        return tir.if_then_else(bounds, x[n, i - padding, j - padding, c], tir.const(0, "float16"))

    padded = te.compute((1, size + 2 * padding, size + 2 * padding, channels), inside, name="PadInput")
    a, b = te.reduce_axis((0, kernel), name="rh"), te.reduce_axis((0, kernel), name="rw")
    c = te.reduce_axis((0, channels), name="rc")
    out = size + 2 * padding - kernel + 1
    return [
        x,
        y,
        te.compute(
            (1, out, out, filters),
            lambda n, i, j, f: te.sum(
                padded[n, i + a, j + b, c].astype("float32") * y[a, b, c, f].astype("float32"), axis=[a, b, c]
            ),
            name="conv",
        ),
    ]


def mma_only(func, target="nvidia/nvidia-a100", pipeline=True):
    """A context whose products use ``mma.sync``, in a software pipeline or not."""
    rules = [rule for i, rule in enumerate(default_rules("cuda-tensorcore")) if i != 1]
    rules[1].use_software_pipeline = pipeline
    space = ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=default_postprocs("cuda-tensorcore"),
        mutator_probs=default_mutators("cuda-tensorcore"),
    )
    return context(func, target, space)


def pipelined_wmma(func, target="nvidia/nvidia-a100"):
    """A context whose products use fragments, in a software pipeline."""
    rules = [rule for i, rule in enumerate(default_rules("cuda-tensorcore")) if i != 2]
    rules[1].use_software_pipeline = True
    space = ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=default_postprocs("cuda-tensorcore"),
        mutator_probs=default_mutators("cuda-tensorcore"),
    )
    return context(func, target, space)


def winograd(size=(9, 6), channels=(4, 16), tile=4):
    """A 3x3 convolution, channels last, by Winograd's algorithm."""
    (ci, co), span = channels, tile + 2
    x, w = te.placeholder((1, *size, ci), "float32", name="x"), te.placeholder((span, span, co, ci), name="w")
    return [x, w, _conv2d_winograd_nhwc_impl(x, w, 1, 1, 1, "float32", tile, True, 3)]


def scaled_rows(n=96, whole=True):
    """A product whose left operand comes of float32: a whole matrix, or one number for each row."""
    a, b = (te.placeholder((n, n), "float16", name=name) for name in "AB")
    m = te.placeholder((n, n) if whole else (n,), "float32", name="M")

    def scaled(i, j):
        return a[i, j] * te.exp(m[i, j] if whole else m[i]).astype("float16")

    c = te.compute((n, n), scaled, name="scaled")
    r = te.reduce_axis((0, n), name="r")

    def product(i, j):
        return te.sum(c[i, r].astype("float32") * b[r, j].astype("float32"), axis=r)

    return [a, m, b, te.compute((n, n), product, name="C")]


def context(func, target="nvidia/nvidia-a100", space="post-order-apply"):
    """A context; ``space`` may be the name of a rule kind."""
    if isinstance(func, (list, tuple)):
        func = te.create_prim_func(func)
    if space == "cuda":
        space = ms.space_generator.PostOrderApply(sch_rules="cuda", postprocs="cuda", mutator_probs="cuda")
    return ms.TuneContext(
        func, target=Target(target), space_generator=space, search_strategy="evolutionary", rand_state=1
    )


CONTEXTS = {
    "matmul": lambda: context(te_workload.matmul(256, 512, 128), space="cuda"),
    "matmul_odd": lambda: context(te_workload.matmul(96, 120, 84), space="cuda"),
    "matmul_relu": lambda: context(te_workload.matmul_relu(128, 128, 64), space="cuda"),
    "batch_matmul": lambda: context(batch_matmul(), space="cuda"),
    "conv2d": lambda: context(te_workload.conv2d_nhwc(1, 28, 28, 32, 64, 3, 1, 1), space="cuda"),
    "conv2d_grouped": lambda: context(te_workload.conv2d_nhwc(1, 8, 8, 16, 32, 3, 1, 1, 1, 4), space="cuda"),
    "conv2d_transposed": lambda: context(te_workload.conv2d_transpose_nhwc(1, 6, 6, 16, 32, 4, 2, 1), space="cuda"),
    "conv2d_bias_relu": lambda: context(conv2d_bias_relu(14, 64, 3, 1), space="cuda"),
    "conv2d_nchw": lambda: context(te_workload.conv2d_nchw(1, 32, 28, 28, 64, 3, 3, 1, 1), space="cuda"),
    "depthwise": lambda: context(depthwise(), space="cuda"),
    "max_pool": lambda: context(max_pool(), space="cuda"),
    "softmax": lambda: context(te_workload.softmax_mn(64, 256), space="cuda"),
    "row_sum": lambda: context(row_sum(), space="cuda"),
    "elementwise": lambda: context(elementwise(), space="cuda"),
    "matmul_wmma": lambda: context(matmul16(512, 256, 512, "float32")),
    "matmul_mma": lambda: mma_only(matmul16(512, 256, 512, "float16")),
    "conv2d_wmma": lambda: context(conv16(28, 64, 64)),
    "matmul_int8": lambda: context(te_workload.matmul(64, 128, 96, "int8", "int32"), space="cuda"),
    "matmul_wmma_pipeline": lambda: pipelined_wmma(matmul16(256, 128, 256, "float32")),
    "conv2d_mma": lambda: mma_only(conv16(16, 32, 32), pipeline=False),
    "conv2d_mma_pipeline": lambda: mma_only(conv16(16, 32, 32)),
    "conv2d_wmma_pipeline": lambda: pipelined_wmma(conv16(16, 32, 32)),
    "winograd": lambda: context(winograd(), space="cuda"),
    "winograd_2": lambda: context(winograd((14, 14), (32, 32), 2), space="cuda"),
}
