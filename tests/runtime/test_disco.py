"""Sessions of workers: calls, values, collective operations and models on parts of the data."""

from __future__ import annotations

import socket
import subprocess
import sys

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.exec import disco_worker  # noqa: F401  (registers functions to call)
from relaxish.relax import transform
from relaxish.relax.distributed import transform as distributed
from relaxish.runtime import ShapeTuple, disco
from relaxish.script import ir as I
from relaxish.script import relax as R


def _on_two_nodes(num_workers, num_groups):
    """A session of which half the workers are another node's, on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["127.0.0.1", str(port), str(num_workers // 2)]
    node = subprocess.Popen([sys.executable, "-m", "relaxish.exec.disco_remote_socket_session", *arguments])
    made = disco.SocketSession(2, num_workers // 2, num_groups, "127.0.0.1", port)
    made.node = node
    return made


@pytest.fixture(scope="module", params=[disco.ThreadedSession, disco.ProcessSession, _on_two_nodes])
def session(request):
    made = request.param(num_workers=4, num_groups=2)
    yield made
    made.shutdown()
    if hasattr(made, "node"):
        assert made.node.wait(timeout=30) == 0


def _values(ref, count=4):
    found = [ref.debug_get_from_remote(w) for w in range(count)]
    return [v.numpy().tolist() if hasattr(v, "numpy") else v for v in found]


def test_functions_and_values(session):
    assert session.num_workers == 4
    call = session.get_global_func
    assert _values(call("tests.disco.add_one")(1)) == [2] * 4
    assert _values(call("tests.disco.add_one")(call("tests.disco.add_one")(1))) == [3] * 4
    assert _values(call("tests.disco.add_one_float")(1.5)) == [2.0] * 4
    assert _values(call("tests.disco.str")("x")) == ["x_suffix"] * 4
    shape = call("tests.disco.shape_tuple")(ShapeTuple([1, 2, 3])).debug_get_from_remote(3)
    assert isinstance(shape, ShapeTuple) and list(shape) == [1, 2, 3, 4, 5]
    assert _values(call("runtime.disco.worker_rank")()) == [0, 1, 2, 3]


def test_arrays(session):
    x = relaxish.nd.array(np.arange(4, dtype="float32"))
    remote = session.empty((4,), "float32")
    session.copy_to_worker_0(x, remote)
    remote.debug_copy_from(2, np.full(4, 7, "float32"))
    assert remote.debug_get_from_remote(2).numpy().tolist() == [7] * 4
    back = relaxish.nd.empty((4,), "float32")
    session.copy_from_worker_0(back, session.get_global_func("tests.disco.add_one_ndarray")(remote))
    assert back.numpy().tolist() == [1, 2, 3, 4]
    only = session.empty((2,), "int64", worker0_only=True)
    assert [only.debug_get_from_remote(w) is None for w in range(4)] == [False, True, False, True]
    session.sync_worker_0()


def test_collective_operations(session):
    def spread(rows):
        return session.scatter(np.asarray(rows, "float32"), in_group=False)

    x = spread([[1, 2], [3, 4], [5, 6], [7, 8]])
    assert _values(x) == [[1, 2], [3, 4], [5, 6], [7, 8]]
    out = session.empty((2,), "float32")
    assert _values(session.allreduce(x, out, "sum")) == [[4, 6]] * 2 + [[12, 14]] * 2
    assert _values(session.allreduce(x, out, "max", in_group=False)) == [[7, 8]] * 4
    assert _values(session.allreduce(x, out, "avg", in_group=False)) == [[4, 5]] * 4
    both = session.empty((4,), "float32")
    assert _values(session.allgather(x, both)) == [[1, 2, 3, 4]] * 2 + [[5, 6, 7, 8]] * 2
    four = session.empty((4, 2), "float32")
    session.gather_to_worker0(x, four, in_group=False)
    assert four.debug_get_from_remote(0).numpy().tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert _values(session.broadcast(np.array([9], "int32"), in_group=False)) == [[9]] * 4
    with pytest.raises(ValueError, match="Unsupported reduce op"):
        session.allreduce(x, out, "median")


def test_errors_come_back(session):
    session.get_global_func("runtime.disco.init_ccl")("none_such", ShapeTuple([0, 1, 2, 3]))
    for worker in range(4):
        with pytest.raises(relaxish.TVMError, match="none_such"):
            session._sync_worker(worker)
    assert _values(session.get_global_func("tests.disco.add_one")(1)) == [2] * 4


def test_a_distributed_model(tmp_path):
    @I.ir_module
    class Mlp:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(
            x: R.Tensor((6, 8), "float32"), up: R.Tensor((8, 10), "float32"), down: R.Tensor((10, 4), "float32")
        ) -> R.Tensor((6, 4), "float32"):
            with R.dataflow():
                a = R.matmul(x, up)
                b = R.nn.relu(a)
                c = R.dist.annotate_sharding(b, device_mesh="mesh[0]", placement="S[1]")
                d = R.matmul(c, down)
                R.output(d)
            return d

    mod = distributed.PropagateSharding()(transform.LegalizeOps()(Mlp))
    mod = distributed.LowerGlobalViewToLocalView()(mod)
    mod = distributed.LowerDistIR()(distributed.LegalizeRedistribute()(mod))
    mod = transform.LegalizeOps()(mod)
    mod = relax.transform.DeadCodeElimination()(mod)
    path = str(tmp_path / "mlp.so")
    relaxish.build(mod, "llvm", relax_pipeline="default_build").export_library(path)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s).astype("float32") for s in [(6, 8), (8, 10), (10, 4)]]
    session = disco.ThreadedSession(num_workers=2)
    remote = [session.empty(a.shape, "float32") for a in arrays]
    for ref, a in zip(remote, arrays):
        session.copy_to_worker_0(relaxish.nd.array(a), ref)
    got = session.load_vm_module(path)["main"](*remote)
    want = np.maximum(arrays[0] @ arrays[1], 0) @ arrays[2]
    for worker in range(2):
        np.testing.assert_allclose(got.debug_get_from_remote(worker).numpy(), want, rtol=1e-4, atol=1e-4)
    session.shutdown()


def test_errors_whose_class_wants_more_than_a_text():
    from relaxish.runtime.disco.messages import as_error

    assert type(as_error("ValueError", "x")) is ValueError
    for name in ("UnicodeDecodeError", "SystemExit", "open", "NoSuchError", 3):
        assert isinstance(as_error(name, "text"), RuntimeError)


def test_nothing_that_arrives_is_unpickled():
    from pathlib import Path

    from relaxish.runtime import rpc

    for package in (rpc, disco):
        for path in Path(package.__file__).parent.glob("*.py"):
            text = path.read_text()
            assert "import pickle" not in text and "multiprocessing" not in text and "marshal" not in text, path
