"""One model by two ways: exported from torch, and built as an ONNX graph; both against torch."""

import numpy as np
import onnx
import torch
import tvm
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.export import export
from torch import fx
from tvm import relax
from tvm.relax.frontend import detach_params
from tvm.relax.frontend.onnx import from_onnx
from tvm.relax.frontend.torch import from_exported_program, from_fx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x):
        return torch.softmax(self.fc2(torch.relu(self.fc1(x))), dim=-1)


def run(mod, params, x):
    ex = relax.build(mod, target="llvm")
    vm = relax.VirtualMachine(ex, tvm.cpu())
    out = vm["main"](tvm.nd.array(x), *params)
    out = out[0] if not hasattr(out, "numpy") else out
    return out.numpy()


def main():
    torch.manual_seed(0)
    net = Net().eval()
    x = torch.randn(2, 8)
    want = net(x).detach().numpy()

    mod = from_exported_program(export(net, (x,)), keep_params_as_input=True)
    mod, params = detach_params(mod)
    mod = relax.get_pipeline("zero")(mod)
    np.testing.assert_allclose(run(mod, params["main"], x.numpy()), want, rtol=1e-5, atol=1e-6)
    print("torch.export is right")

    mod = from_fx(fx.symbolic_trace(net), [((2, 8), "float32")])
    np.testing.assert_allclose(run(mod, [], x.numpy()), want, rtol=1e-5, atol=1e-6)
    print("fx is right")

    weights = {k.replace(".", "_"): v.detach().numpy() for k, v in net.state_dict().items()}
    nodes = [
        helper.make_node("Gemm", ["x", "fc1_weight", "fc1_bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "fc2_weight", "fc2_bias"], ["o"], transB=1),
        helper.make_node("Softmax", ["o"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    mod = from_onnx(model, keep_params_in_input=True)
    mod, params = detach_params(mod)
    mod = relax.transform.DecomposeOpsForInference()(mod)
    np.testing.assert_allclose(run(mod, params["main"], x.numpy()), want, rtol=1e-5, atol=1e-6)
    print("onnx is right")


if __name__ == "__main__":
    main()
