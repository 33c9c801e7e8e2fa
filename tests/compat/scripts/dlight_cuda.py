"""Default GPU schedules for CUDA, looked at as source: nothing is run, so that no GPU is needed."""

import tvm
from tvm import dlight as dl
from tvm import te, tir


def dense(m, n, k):
    A = te.placeholder((m, k), "float16", name="A")
    B = te.placeholder((n, k), "float16", name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[j, r], axis=r), name="C")
    return te.create_prim_func([A, B, C])


def softmax(n, m):
    from tvm import topi

    A = te.placeholder((n, m), name="A")
    return te.create_prim_func([A, topi.nn.softmax(A)])


def main():
    target = tvm.target.Target("nvidia/geforce-rtx-3090")
    mod = tvm.IRModule({"dense": dense(64, 64, 64), "gemv": dense(1, 256, 256), "softmax": softmax(32, 64)})
    with target:
        mod = dl.ApplyDefaultSchedule(
            dl.gpu.Matmul(), dl.gpu.GEMV(), dl.gpu.Reduction(), dl.gpu.GeneralReduction(), dl.gpu.Fallback()
        )(mod)
    for gv, func in mod.functions_items():
        assert func.attrs["tir.is_scheduled"], gv
        launches = []
        tir.stmt_functor.post_order_visit(
            func.body,
            lambda s: (
                launches.append(s.thread_binding.thread_tag) if isinstance(s, tir.For) and s.thread_binding else None
            ),
        )
        print(gv.name_hint, sorted(set(launches)))
    built = tvm.tir.build(mod, target=target)
    source = built.imported_modules[0].get_source()
    assert "__global__" in source and "threadIdx.x" in source
    print("cuda source:", len(source.splitlines()) > 20)


if __name__ == "__main__":
    main()
