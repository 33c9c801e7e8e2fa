"""Random calls of kernels and models with arguments good and bad: ``python hostile_arguments.py SEED COUNT``.

Each call must compute what NumPy says or raise an error; memory that it is not to write must be what it was, in both
cases. Run in a process of its own, since the alternative to an error is a crash.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter

import numpy as np

import relaxish
from relaxish import relax
from relaxish.runtime import cpu, nd
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support import config
from relaxish.testing.fuzz.child import in_child

N = 6


@T.prim_func
def dynamic(a: T.handle, b: T.handle, c: T.handle, m: T.int32):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n, 2), "float32")
    C = T.match_buffer(c, (n * 2 + 1,), "float32")
    for i in range(n):
        with T.block("b"):
            v = T.axis.spatial(n, i)
            C[v * 2] = A[v] + B[v, 0]
            C[v * 2 + 1] = A[v] * B[v, 1] + T.Cast("float32", m)
            C[n * 2] = T.float32(7)


@T.prim_func
def in_place(a: T.Buffer((N,), "float32"), b: T.Buffer((N,), "float32")):
    for i in range(N):
        with T.block("b"):
            v = T.axis.spatial(N, i)
            b[v] = b[v] * T.float32(2) + a[N - 1 - v]


@I.ir_module
class Model:
    @R.function
    def static(x: R.Tensor((N, 2), "float32"), y: R.Tensor((2, 3), "float32")):
        return R.nn.relu(R.matmul(x, y))

    @R.function
    def symbolic(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("n",), "float32")):
        n = T.int64()
        return R.reshape(R.add(x, R.expand_dims(y, 1)), R.shape([n * 2]))


def expected(name, args):
    """What NumPy says, as the values of the outputs; None for arguments of the wrong kind."""
    if name == "dynamic":
        a, b, c, m = args
        if [x.dtype for x in args[:3]] != ["float32"] * 3 or a.ndim != 1 or b.shape != (len(a), 2):
            return None
        if c.shape != (2 * len(a) + 1,):
            return None
        out = np.array(c)
        if len(a):
            out[:-1:2], out[1::2], out[-1] = a + b[:, 0], a * b[:, 1] + np.float32(m), 7
        return out
    x, y = args
    if [x.dtype, y.dtype] != ["float32"] * 2:
        return None
    if name == "in_place":
        return y * np.float32(2) + x[::-1] if x.shape == y.shape == (N,) else None
    if name == "static":
        return np.maximum(x @ y, 0) if (x.shape, y.shape) == ((N, 2), (2, 3)) else None
    return (x + y[:, None]).reshape(-1) if x.ndim == 2 and x.shape[1] == 2 and y.shape == x.shape[:1] else None


WANTED = {
    "dynamic": lambda n: [(n,), (n, 2), (2 * n + 1,)],
    "in_place": lambda n: [(N,), (N,)],
    "static": lambda n: [(N, 2), (2, 3)],
    "symbolic": lambda n: [(n, 2), (n,)],
}
WRITES = {"dynamic": 2, "in_place": 1}


class Arguments:
    """Makes arguments out of one piece of memory, whose changes are seen."""

    def __init__(self, rng):
        self.rng = rng
        self.memory = []

    def shape(self, shape):
        """The shape, or now and then another."""
        roll = self.rng.integers(12)
        if roll == 0:
            return tuple(max(0, d + int(self.rng.integers(-1, 2))) for d in shape)
        if roll == 1:
            return (*shape, 1) if self.rng.integers(2) else shape[:-1]
        return shape

    def make(self, shape):
        """(argument, the array of NumPy that it stands for, whether it may be written)."""
        rng = self.rng
        shape = self.shape(shape)
        dtype = "float32" if rng.integers(10) else str(rng.choice(["float64", "int32", "float16", "bool"]))
        values = rng.standard_normal(shape).astype(dtype)
        kind = rng.choice(
            ["plain", "step", "backwards", "transposed", "order", "misaligned", "frozen", "broadcast", "torch",
             "torch step", "array", "view", "dlpack"]
        )  # fmt: skip
        return self.of_kind(str(kind), values)

    def own(self, array):
        self.memory.append(array)
        return array

    def of_kind(self, kind, values):
        import torch

        shape = values.shape
        if kind == "step" and values.ndim:
            base = self.own(np.zeros((*shape[:-1], shape[-1] * 3), values.dtype))
            made = base[..., 1::3] if shape[-1] else base
        elif kind == "backwards" and values.ndim:
            made = self.own(np.zeros(shape, values.dtype))[::-1]
        elif kind == "transposed" and values.ndim > 1:
            made = self.own(np.zeros(shape[::-1], values.dtype)).transpose()
        elif kind == "order" and values.dtype.itemsize > 1:
            made = self.own(np.zeros(shape, values.dtype.newbyteorder(">")))
        elif kind == "misaligned":
            made = self.own(np.zeros(values.nbytes + 1, "uint8"))[1:].view(values.dtype).reshape(shape)
        elif kind == "broadcast" and values.ndim:
            made = np.broadcast_to(
                self.own(np.array(values.reshape(-1)[:1] if values.size else 0, values.dtype).reshape(())), shape
            )
            return made, made, False
        else:
            made = self.own(np.zeros(shape, values.dtype))
        made[...] = values
        if kind == "frozen":
            made.flags.writeable = False
            return made, made, False
        if kind == "torch":
            return torch.from_numpy(made), made, True
        if kind == "torch step" and values.ndim:
            tensor = torch.from_numpy(self.own(np.repeat(values, 2, -1)))[..., ::2]
            return tensor, tensor.numpy(), True
        if kind == "array":
            return nd.from_dlpack(made), made, True
        if kind == "view":
            whole = nd.from_dlpack(self.own(np.concatenate([values.reshape(-1)] * 2)))
            half = whole._create_view(shape, relative_byte_offset=values.nbytes)
            return half, half._host(), True
        return made, made, True


def call(functions, rng):
    """One call; what it was, and how it ended."""
    name = str(rng.choice(sorted(functions)))
    arguments = Arguments(rng)
    made = [arguments.make(shape) for shape in WANTED[name](int(rng.integers(0, 9)))]
    given, arrays, writable = (list(part) for part in zip(*made, strict=True))
    if len(arrays) == 2 and rng.integers(6) == 0:  # one of them twice
        given[1], arrays[1], writable[1] = given[0], arrays[0], writable[0]
    if name == "dynamic":
        number = int(rng.integers(-3, 4))
        given, arrays = [*given, number], [*arrays, number]
    before = [np.array(a, getattr(a, "dtype", np.dtype("int64")).newbyteorder("=")) for a in arrays]
    bytes_before = [m.tobytes() for m in arguments.memory]
    want = expected(name, before)
    out = WRITES.get(name)
    wrong = str(rng.choice(["", "", "", "", "", "", "", "few", "many", "none", "text"]))
    if wrong == "few":
        given = given[:-1]
    elif wrong:
        given = [*given, 3] if wrong == "many" else [{"none": None, "text": "x"}[wrong], *given[1:]]
    try:
        result = functions[name](*given)
    except (ValueError, TypeError, RuntimeError):
        assert wrong or want is None or (out is not None and not writable[out]), (name, "refused what was right")
        assert bytes_before == [m.tobytes() for m in arguments.memory], (name, "wrote, and failed")
        return "refused"
    assert not wrong and want is not None, (name, wrong, "accepted what was wrong")
    got = arrays[out] if out is not None else result.numpy()
    assert out is None or writable[out], (name, "wrote what must not be written")
    np.testing.assert_allclose(np.asarray(got, "float32"), want, rtol=2e-5, atol=2e-5)
    if out is None:
        assert bytes_before == [m.tobytes() for m in arguments.memory], (name, "wrote to its inputs")
    return "done"


def built_functions():
    """What is called, by name."""
    machine = relax.VirtualMachine(relaxish.build(Model, "llvm"), cpu())
    return {
        "dynamic": relaxish.tir.build(dynamic, "llvm")["dynamic"],
        "in_place": relaxish.tir.build(in_place, "llvm")["in_place"],
        "static": machine["static"],
        "symbolic": machine["symbolic"],
    }


def main(seed, count):
    functions = built_functions()
    ends = {"done": 0, "refused": 0}
    for n in range(count):
        rng = np.random.default_rng([seed, n])
        try:
            ends[call(functions, rng)] += 1
        except AssertionError as error:
            raise AssertionError(f"call {n} of seed {seed}: {error}") from error
    print(ends)
    return ends


_BATCH = 200


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Calls ``tried``: ``done`` with the right numbers, ``refused`` with an error, ``wrong``, ``crashed``, ``hung``.

    Every second batch runs with each load and store watched, and then a report of one counts as ``wrong``. Without
    torch, whose tensors are among the arguments, all are ``skipped``.
    """
    if importlib.util.find_spec("torch") is None:
        return {"tried": 1, "skipped": 1}
    import torch  # noqa: F401  (once, not in every child)

    end = time.monotonic() + budget_s
    figures: Counter[str] = Counter(tried=0, done=0, refused=0, wrong=0, crashed=0, hung=0)
    levels = {}
    for level in (0, 2):
        with config.CHECK.override(level):
            levels[level] = built_functions()
    batch = 0
    while time.monotonic() < end or not figures["tried"]:
        first, level = batch * _BATCH, 2 * (batch % 2)
        found = in_child(lambda: _calls(levels[level], seed, first, min(end, time.monotonic() + 20)), 60)
        batch += 1
        if isinstance(found, str):
            figures["tried"] += 1
            figures["hung" if "SIGALRM" in found else "crashed"] += 1
            print(f"calls from {first} of seed {seed}: {found}", file=sys.stderr, flush=True)
        else:
            figures.update(found)
    return dict(figures)


def _calls(functions, seed, first, end):
    figures = Counter()
    for n in range(first, first + _BATCH):
        if n > first and time.monotonic() > end:
            break
        figures["tried"] += 1
        try:
            figures[call(functions, np.random.default_rng([seed, n]))] += 1
        except Exception as error:  # any other end is a fault
            figures["wrong"] += 1
            print(f"call {n} of seed {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return figures


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
