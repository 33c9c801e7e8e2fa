"""Tune the tensor programs of a small convolution net with a few trials, build with the records, and run it."""

import tempfile

import numpy as np
import tvm
from tvm import meta_schedule as ms
from tvm import relax
from tvm.script import relax as R


@tvm.script.ir_module
class ConvNet:
    @R.function
    def main(
        data: R.Tensor((1, 4, 10, 10), "float32"),
        w1: R.Tensor((8, 4, 3, 3), "float32"),
        w2: R.Tensor((8, 5), "float32"),
    ) -> R.Tensor((1, 5), "float32"):
        with R.dataflow():
            lv = R.nn.conv2d(data, w1, padding=(1, 1))
            lv1 = R.nn.relu(lv)
            lv2 = R.mean(lv1, axis=[2, 3])
            gv = R.matmul(lv2, w2)
            R.output(gv)
        return gv


def main():
    target = tvm.target.Target("llvm -num-cores 2")
    rng = np.random.default_rng(0)
    params = {
        "w1": rng.standard_normal((8, 4, 3, 3)).astype("float32"),
        "w2": rng.standard_normal((8, 5)).astype("float32"),
    }
    mod = relax.transform.BindParams("main", {k: tvm.nd.array(v) for k, v in params.items()})(ConvNet)
    mod = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
    )(mod)
    with tempfile.TemporaryDirectory() as work_dir:
        with target, tvm.transform.PassContext(opt_level=3):
            tasks = ms.relax_integration.extract_tasks(mod, target)
            database = ms.relax_integration.tune_relax(
                mod,
                params={},
                target=target,
                work_dir=work_dir,
                max_trials_global=4,
                max_trials_per_task=2,
                num_trials_per_iter=2,
                cost_model="random",
                seed=1,
            )
            tuned = relax.transform.MetaScheduleApplyDatabase(work_dir)(mod)
        ex = relax.build(tuned, target)
        print("tasks:", len(tasks), "records:", len(database.get_all_tuning_records()) > 0)
    vm = relax.VirtualMachine(ex, tvm.cpu())
    x = rng.standard_normal((1, 4, 10, 10)).astype("float32")
    out = vm["main"](tvm.nd.array(x)).numpy()

    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    conv = np.einsum("nchwij,ocij->nohw", windows, params["w1"])
    np.testing.assert_allclose(out, np.maximum(conv, 0).mean((2, 3)) @ params["w2"], rtol=1e-4, atol=1e-5)
    print("tuned net is right")


if __name__ == "__main__":
    main()
