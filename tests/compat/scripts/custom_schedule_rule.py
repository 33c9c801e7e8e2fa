"""A schedule rule of one's own in the search space, and a postprocessor that counts what it sees."""

import numpy as np
import tvm
from tvm import meta_schedule as ms
from tvm import te
from tvm.meta_schedule.postproc import PyPostproc
from tvm.meta_schedule.schedule_rule import PyScheduleRule
from tvm.meta_schedule.utils import derived_object
from tvm.tir.schedule import BlockRV, Schedule

SEEN = []


@derived_object
class SplitInFour(PyScheduleRule):
    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        self.target = context.target

    def apply(self, sch: Schedule, block: BlockRV):
        if sch.get(block).name_hint != "C":
            return [sch]
        made = []
        for factor in (4, 8):
            new = sch.copy()
            block = new.get_block("C")
            i, j, k = new.get_loops(block)
            outer, inner = new.split(j, factors=[None, factor])
            new.reorder(i, outer, k, inner)
            new.vectorize(inner)
            new.parallel(i)
            made.append(new)
        return made

    def clone(self) -> "SplitInFour":
        return SplitInFour()


@derived_object
class Count(PyPostproc):
    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        pass

    def apply(self, sch: Schedule) -> bool:
        SEEN.append(sch)
        return True

    def clone(self) -> "Count":
        return Count()


def matmul(n: int):
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_prim_func([A, B, C])


def main():
    target = tvm.target.Target("llvm --num-cores=2")
    mod = tvm.IRModule({"main": matmul(32)})
    context = ms.TuneContext(
        mod=mod,
        target=target,
        space_generator=ms.space_generator.PostOrderApply(
            sch_rules=[SplitInFour()], postprocs=[Count()], mutator_probs={}
        ),
        search_strategy="replay-trace",
        task_name="matmul",
    )
    spaces = context.generate_design_space()
    print("spaces:", len(spaces))
    a, b = (np.random.default_rng(s).random((32, 32)).astype("float32") for s in (0, 1))
    for sch in spaces:
        func = tvm.build(sch.mod, target=target)
        c = tvm.nd.empty((32, 32))
        func["main"](tvm.nd.array(a), tvm.nd.array(b), c)
        np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5)
        print(sch.trace.as_python()[0] if isinstance(sch.trace.as_python(), list) else "trace")
    print("custom rule is right")


main()
