"""Build here, run on a device behind RPC: the server is on this machine."""

import numpy as np
import tvm
from tvm import meta_schedule as ms
from tvm import rpc, te
from tvm.contrib import utils
from tvm.meta_schedule.testing.local_rpc import LocalRPC


def main():
    n = 1024
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    func = te.create_prim_func([A, B])
    target = tvm.target.Target("llvm")
    lib = tvm.build(func, target=target)
    temp = utils.tempdir()
    path = temp.relpath("lib.tar")
    lib.export_library(path)

    server = rpc.Server("127.0.0.1", key="compat")
    try:
        remote = rpc.connect("127.0.0.1", server.port, key="compat")
        remote.upload(path)
        remote_lib = remote.load_module("lib.tar")
        dev = remote.cpu()
        a = tvm.nd.array(np.arange(n, dtype="float32"), dev)
        b = tvm.nd.array(np.zeros(n, dtype="float32"), dev)
        remote_lib["main"](a, b)
        np.testing.assert_allclose(b.numpy(), a.numpy() + 1)
        evaluator = remote_lib.time_evaluator("main", dev, number=3)
        print("seconds > 0:", evaluator(a, b).mean > 0)
    finally:
        server.terminate()

    with LocalRPC() as local:
        config = ms.runner.RPCConfig(
            tracker_host=local.tracker_host,
            tracker_port=local.tracker_port,
            tracker_key=local.tracker_key,
            session_priority=1,
            session_timeout_sec=60,
        )
        builder, runner = (
            ms.builder.LocalBuilder(),
            ms.runner.RPCRunner(config, ms.runner.EvaluatorConfig(number=1, repeat=1)),
        )
        mod = tvm.IRModule({"main": func})
        (built,) = builder.build([ms.builder.BuilderInput(mod, target)])
        assert built.error_msg is None, built.error_msg
        args = [ms.arg_info.TensorInfo("float32", (n,)), ms.arg_info.TensorInfo("float32", (n,))]
        (future,) = runner.run([ms.runner.RunnerInput(built.artifact_path, "llvm", args)])
        result = future.result()
        assert result.error_msg is None, result.error_msg
        print("runner seconds:", len(result.run_secs))
    print("rpc is right")


if __name__ == "__main__":
    main()
