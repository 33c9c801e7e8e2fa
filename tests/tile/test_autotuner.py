"""Choosing among configurations by measuring them."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from tile_kernels import bound_add, dynamic_add, matmul, scaled_add

from relaxish import tile
from relaxish.script import tir as S
from relaxish.support import config
from relaxish.support.errors import MalformedDataError
from relaxish.target import Target
from relaxish.testing.targets import device_enabled
from relaxish.tile.autotuner import AutoTuner, AutotuneResult, CompileArgs, autotune, set_autotune_inputs, tuner
from relaxish.tile.autotuner.identity import OpaqueValueError, identity_of
from relaxish.tile.jit import cache, store
from relaxish.tile.profiler import TensorSupplyType

TARGET = "llvm -num-cores=1"
QUICK = {"warmup": 1, "rep": 2, "timeout": 60}


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    cache._KERNELS.clear()
    tuner._RESULTS.clear()
    with config.CACHE_DIR.override(tmp_path / "cache"), config.TILE_AUTO_TUNING_CPU_COUNTS.override(2):
        yield tmp_path / "cache"
    cache._KERNELS.clear()
    tuner._RESULTS.clear()


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def slow_add(n=64, loops=1, factor=2.0):
    """A kernel that does its work ``loops`` times."""

    @S.prim_func
    def main(A: S.Buffer((n,), "float32"), B: S.Buffer((n,), "float32"), C: S.Buffer((n,), "float32")):
        for k, i in S.grid(loops, n):
            with S.block("C"):
                vk, vi = S.axis.remap("SS", [k, i])
                C[vi] = S.sin(A[vi] * S.float32(factor) + B[vi] + S.Cast("float32", vk)) * 0.0 + A[vi] * factor + B[vi]

    return main


def fails(n=64, loops=1, factor=2.0):
    if loops == 7:
        raise ValueError("seven is too many")
    return slow_add(n, loops, factor)


def reference(a, b):
    return a * 2 + b


def tuned(configs, kernel=slow_add, run=None, **options):
    made = AutoTuner.from_kernel(kernel=kernel, configs=configs)
    made.set_compile_args(out_idx=[-1], target=TARGET).set_profile_args(**{**QUICK, **options})
    return made.run(**(run or {}))


def test_the_fastest_configuration_wins():
    result = tuned([{"loops": 300_000}, {"loops": 1}, {"loops": 200_000}], ref_prog=reference)
    assert result.config == {"loops": 1} and 0 < result.latency < 100 and result.ref_latency > 0
    a, b = rand(64), rand(64, seed=1)
    np.testing.assert_allclose(result.kernel(a, b), a * 2 + b, rtol=1e-5)
    assert result.kernel.config == {"loops": 1} and result.kernel.latency == result.latency
    assert "define" in result.libcode and "main" in result.func.script()


def test_a_fast_configuration_that_is_wrong_does_not_win(caplog):
    configs = [{"loops": 300_000, "factor": 2.0}, {"loops": 1, "factor": 2.5}]
    result = tuned(configs, ref_prog=reference)
    assert result.config == configs[0] and "wrong_answer" in caplog.text
    assert tuned(configs, ref_prog=reference, skip_check=True).config == configs[1]


def test_configurations_that_fail_are_left_out(caplog):
    result = tuned([{"loops": 7}, {"loops": 2}], kernel=fails)
    assert result.config == {"loops": 2} and "seven is too many" in caplog.text


def test_where_all_fail_it_says_of_what():
    with pytest.raises(RuntimeError, match="No configuration successfully compiled.*seven is too many"):
        tuned([{"loops": 7}], kernel=fails)


@pytest.mark.parametrize("configs", [[], list])
def test_without_configurations(configs):
    with pytest.raises(ValueError, match="no configurations"):
        tuned(configs)


def test_a_configuration_that_does_not_fit_is_named():
    with pytest.raises(TypeError, match=r"configuration 1 .*does not fit slow_add.*lops"):
        tuned([{"loops": 1}, {"lops": 1}])

    def needs(n, loops):
        return slow_add(n, loops)

    with pytest.raises(TypeError, match="missing a required argument: 'n'"):
        tuned([{"loops": 1}], kernel=needs)


def test_configurations_of_a_function():
    made = AutoTuner.from_kernel(slow_add, configs=lambda n: [{"loops": n // 16}])
    made.set_kernel_parameters((64,), {}).set_compile_args(out_idx=-1, target=TARGET)
    assert made.run(**QUICK).config == {"loops": 4}


def test_options_of_passes_of_one_configuration():
    configs = [{"loops": 1, "pass_configs": {"tir.disable_vectorize": True}}]
    result = tuned(configs)
    assert result.config == configs[0]
    assert result.kernel.options.pass_configs == {"tir.disable_vectorize": True}


OLD = {"supply_type": TensorSupplyType.Integer, "ref_prog": reference, "skip_check": False}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"out_idx": [-1], "target": TARGET, **OLD}),
        ((-1, TensorSupplyType.Integer, reference, None, 1e-2, 1e-2, 0.01, False, True, TARGET), {}),
        ((), {"target": TARGET, **OLD}),  # out_idx was -1 there
        (([-1], TARGET), {}),
        ((), {"out_idx": 2, "target": TARGET, "execution_backend": "cython", "verbose": False, "pass_configs": None}),
    ],
)
def test_both_generations_of_settings(args, kwargs):
    made = AutoTuner.from_kernel(kernel=slow_add, configs=[{"loops": 2}]).set_compile_args(*args, **kwargs)
    result = made.run(warmup=1, rep=2)
    assert result.kernel.out_idx == [2] and result.config == {"loops": 2}
    assert (result.ref_latency is not None) == ("ref_prog" in kwargs or len(args) == 10)


def test_settings_that_do_not_exist():
    made = AutoTuner.from_kernel(slow_add, [{}])
    with pytest.raises(TypeError, match="does not know speed"):
        made.set_compile_args(speed=1)
    with pytest.raises(TypeError, match="does not know speed"):
        made.set_profile_args(speed=1)
    with pytest.raises(TypeError, match="by position"):
        made.set_compile_args(-1, "llvm", None, None, None, None, None)


def never_compiled(*args):
    pytest.fail("tuned again")


def test_a_result_is_found_again_in_this_process_and_on_disk(monkeypatch, own_cache):
    result = tuned([{"loops": 1}, {"loops": 50}])
    monkeypatch.setattr(tuner.AutoTuner, "_tune", never_compiled)
    assert tuned([{"loops": 1}, {"loops": 50}]) is result
    tuner._RESULTS.clear()
    cache._KERNELS.clear()
    again = tuned([{"loops": 1}, {"loops": 50}])
    assert again is not result and (again.config, again.latency) == (result.config, result.latency)
    a, b = rand(64), rand(64, seed=1)
    np.testing.assert_array_equal(again.kernel(a, b), result.kernel(a, b))
    (folder,) = [p for p in (own_cache / "tile" / "autotuner").iterdir()]
    names = {p.name for p in folder.iterdir()}
    assert names >= {"best_config.json", "latency.json", "function.pkl", "out_idx.json", "params.pkl", "kernel.so"}
    assert json.loads((folder / "best_config.json").read_text()) == result.config


def test_a_winner_that_was_compiled_before_is_kept_as_well(own_cache):
    tile.compile(slow_add(loops=2), out_idx=[-1], target=TARGET)
    cache._KERNELS.clear()
    result = tuned([{"loops": 2}])
    tuner._RESULTS.clear()
    assert tuned([{"loops": 2}]).latency == result.latency


@pytest.mark.parametrize(
    "change",
    [
        {"configs": [{"loops": 1}, {"loops": 2}]}, {"rep": 3}, {"supply_type": TensorSupplyType.One},
        {"kernel": lambda loops=1: slow_add(32, loops)},
    ],
)  # fmt: skip
def test_another_tuning_is_another_result(monkeypatch, change):
    tuned([{"loops": 1}])
    monkeypatch.setattr(tuner.AutoTuner, "_tune", lambda *a: (_ for _ in ()).throw(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        tuned(**{"configs": [{"loops": 1}], **change})


def test_values_a_factory_closes_over_are_part_of_the_key():
    keys = set()
    for n in (16, 32):
        for default in (1, 2):

            def factory(loops=default):
                return slow_add(n, loops)

            keys.add(
                AutoTuner.from_kernel(factory, [{"loops": 1}]).set_compile_args(target=TARGET).generate_cache_key()
            )
    assert len(keys) == 4 and None not in keys


HELPERS = """
from steps import twice
WIDTH = 16

def size(n):
    return twice(n) // 2
"""
TUNING = """
import functools
import math
import sys

import helpers
import numpy as np
from helpers import size
from relaxish.script import tir as S
from relaxish.tile.autotuner import AutoTuner, tuner

dtype = np.dtype("float32")


def scaled(value, factor=3):
    return factor * value


def factory(n, loops=1):
    count = size(n) + helpers.WIDTH

    @S.prim_func
    def main(A: S.Buffer((count,), str(dtype)), B: S.Buffer((count,), "float32")):
        for k, i in S.grid(loops, count):
            with S.block("B"):
                vk, vi = S.axis.remap("SS", [k, i])
                B[vi] = A[vi] * S.float32(scaled(math.gcd(4, 6)))

    return main


runs = []
tune = tuner.AutoTuner._tune
tuner.AutoTuner._tune = lambda self, *args: runs.append(1) or tune(self, *args)
made = AutoTuner.from_kernel(functools.partial(factory, 16), [{"loops": 1}, {"loops": 2}])
result = made.set_compile_args(out_idx=[-1], target="llvm -num-cores=1").run(warmup=1, rep=2)
a = np.arange(len(result.kernel.params) and helpers.WIDTH + size(16), dtype="float32")
np.testing.assert_array_equal(result.kernel(a), 6 * a)
print("tuned" if runs else "found", made.generate_cache_key())
"""


@pytest.mark.slow
def test_another_process_finds_what_was_tuned_unless_something_of_it_changed(tmp_path):
    """The factory refers to functions of its own file, of a module, and of a module of that module's."""
    files = {"tuning.py": TUNING, "helpers.py": HELPERS, "steps.py": "def twice(n):\n    return 2 * n\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environment = config.worker_environment(RELAXISH_CACHE_DIR=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1")

    def run():
        command = [sys.executable, str(tmp_path / "tuning.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = run()
    assert first[0] == "tuned" and run() == ["found", first[1]]
    keys = {first[1]}
    for name, old, new in (
        ("steps.py", "2 * n", "n + n"),
        ("helpers.py", "WIDTH = 16", "WIDTH = 24"),
        ("tuning.py", "return factor * value", "return value * factor"),
    ):
        (tmp_path / name).write_text((tmp_path / name).read_text().replace(old, new))
        said, key = run()
        assert said == "tuned" and key not in keys, name
        keys.add(key)
    assert run() == ["found", key]


def outer(values, flag=True):
    def inner(x):
        return x + len(values) if flag else even(x)

    return inner


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


class Sizes:
    """What a factory may ask."""

    width = 8

    def area(self, n):
        return outer([n])(self.width)


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int
    columns: int = 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (1, 1.0), ([1, 2], (1, 2)), ("a", b"a"), ({1: 2}, {2: 1}), ({3, 1}, {3, 2}), (outer([1]), outer([2])),
        (outer([1]), outer([1], False)), (functools.partial(even, 1), functools.partial(even, 2)), (even, odd),
        (np.float32, np.float64), (np.dtype("int8"), np.dtype("uint8")), (torch.float16, torch.float32),
        (np.arange(3), np.arange(4)), (lambda: 1, lambda: 2), (Shape(1), Shape(2)), (Shape(1), Sizes), (json, os),
        (Target("llvm"), Target("llvm -num-cores=3")), (slow_add(8), slow_add(9)), (len, max), (functools.cache(even), even),
        (TensorSupplyType.One, TensorSupplyType.Zero),
    ],
)  # fmt: skip
def test_what_is_different_has_another_identity(one, other):
    assert identity_of(one) == identity_of(one)
    assert identity_of(one) != identity_of(other)
    json.dumps([identity_of(one), identity_of(other)])


def test_what_cannot_be_compared_is_named(caplog):
    thing = object()

    def opaque(loops=1):
        return thing and slow_add(16, loops)

    with pytest.raises(OpaqueValueError, match=r"thing is an object of class builtins\.object"):
        identity_of(opaque)
    endless = []
    endless.append(endless)
    with pytest.raises(OpaqueValueError, match="contains itself"):
        identity_of(endless)
    with pytest.raises(OpaqueValueError, match="source of it is not known"):
        identity_of(eval("lambda: 1"))
    assert AutoTuner.from_kernel(opaque, [{"loops": 1}]).generate_cache_key() is None
    assert "opaque finds is not kept for other processes: thing is an object" in caplog.text


@pytest.mark.parametrize("name", ["ref_prog", "supply_prog", "manual_check_prog"])
def test_programs_of_the_caller_are_not_kept_on_disk(own_cache, name):
    given = {
        "ref_prog": reference, "supply_prog": lambda params: [torch.ones(64), torch.ones(64)],
        "manual_check_prog": lambda a, b: None,
    }[name]  # fmt: skip
    result = tuned([{"loops": 1}], **{name: given})
    assert not list((own_cache / "tile").glob("autotuner/*"))
    # In this process the very functions are known.
    assert tuned([{"loops": 1}], **{name: given}) is result


def test_the_cache_can_be_off(own_cache):
    with config.TILE_AUTO_TUNING_DISABLE_CACHE.override(True):
        first = tuned([{"loops": 1}])
        assert tuned([{"loops": 1}]) is not first
    assert not list((own_cache / "tile").glob("autotuner/*"))


def test_a_damaged_result_is_tuned_again(own_cache, caplog):
    tuned([{"loops": 1}])
    (folder,) = (own_cache / "tile" / "autotuner").iterdir()
    (folder / "latency.json").write_text('{"latency": -1}')
    tuner._RESULTS.clear()
    assert tuned([{"loops": 1}]).latency > 0 and "is made again" in caplog.text


def test_results_are_saved_and_loaded(tmp_path):
    result = tuned([{"loops": 1}], ref_prog=reference)
    result.save_to_disk(tmp_path / "mine")
    again = AutotuneResult.load_from_disk(tmp_path / "mine", CompileArgs(target=TARGET))
    assert (again.config, again.latency, again.ref_latency) == (result.config, result.latency, result.ref_latency)
    assert again.func.script() == result.func.script() and again.libcode == result.libcode
    a, b = rand(64), rand(64, seed=1)
    np.testing.assert_array_equal(again.kernel(a, b), result.kernel(a, b))
    for name, value in (("best_config.json", "[]"), ("latency.json", '{"latency": "soon"}'), ("out_idx.json", "[-1]")):
        good = (tmp_path / "mine" / name).read_text()
        (tmp_path / "mine" / name).write_text(value)
        with pytest.raises(MalformedDataError, match=f"{name} was changed"):
            AutotuneResult.load_from_disk(tmp_path / "mine", CompileArgs(target=TARGET))
        store.seal(tmp_path / "mine")
        with pytest.raises(MalformedDataError):
            AutotuneResult.load_from_disk(tmp_path / "mine", CompileArgs(target=TARGET))
        (tmp_path / "mine" / name).write_text(good)
        store.seal(tmp_path / "mine")
    AutotuneResult.load_from_disk(tmp_path / "mine", CompileArgs(target=TARGET))


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


def test_a_stored_result_runs_nothing_but_its_kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuned([{"loops": 1}]).save_to_disk(tmp_path / "mine")
    for name in ("function.pkl", "params.pkl"):
        (tmp_path / "mine" / name).write_bytes(pickle.dumps(Evil()))
    store.seal(tmp_path / "mine")
    loaded = AutotuneResult.load_from_disk(tmp_path / "mine", CompileArgs(target=TARGET))
    with pytest.raises(MalformedDataError, match="system"):
        _ = loaded.func
    assert not (tmp_path / "evil").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on(own_cache):
    """What was measured before the end is not measured again."""
    code = (
        "import os, sys; from test_autotuner import *; import relaxish.tile.autotuner.tuner as t\n"
        "old = t._Progress.__call__\n"
        "def kill(self, measured):\n    old(self, measured)\n    if self.done == 2: os._exit(9)\n"
        "t._Progress.__call__ = kill\n"
        "tuned([{'loops': n} for n in (1, 40, 2, 50)])\n"
    )
    env = {**os.environ, "RELAXISH_CACHE_DIR": str(own_cache)}
    env["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 9
    (journal,) = (own_cache / "tile" / "autotuner").glob("*.journal")
    before = journal.read_text().splitlines()
    assert len(before) == 2
    seen = []
    old = tuner._Progress.__call__

    def watch(self, measured):
        seen.append(measured.remembered)
        old(self, measured)

    tuner._Progress.__call__ = watch
    try:
        result = tuned([{"loops": n} for n in (1, 40, 2, 50)])
    finally:
        tuner._Progress.__call__ = old
    assert seen == [True, True, False, False] and result.config["loops"] in (1, 2)
    assert not journal.exists()


def test_inputs_of_the_callers_program():
    seen = []

    def supply(params):
        seen.append([(p.dtype, p.shape) for p in params])
        return [torch.full((64,), 3.0), torch.full((64,), 4.0)]

    def check(got, expected):
        assert float(expected[0][0]) == 10.0
        torch.testing.assert_close(got[0], expected[0])

    tuned([{"loops": 1}], supply_prog=supply, ref_prog=reference, manual_check_prog=check)
    assert seen[0] == [("float32", (64,))] * 2


@pytest.mark.parametrize("form", ["several", "list"])
def test_inputs_of_a_scope(form):
    a, b = torch.full((64,), 3.0), torch.full((64,), 4.0)
    expected = []

    def ref(x, y):
        expected.append((float(x[0]), float(y[0])))
        return x * 2 + y

    with set_autotune_inputs(a, b) if form == "several" else set_autotune_inputs([a, b]):
        tuned([{"loops": 1}], ref_prog=ref)
    assert expected and set(expected) == {(3.0, 4.0)}


def test_extents_that_the_inputs_tell():
    def factory(width=1):
        return dynamic_add()

    a = rand(40)
    with pytest.raises(RuntimeError, match="known at run time only"):
        tuned([{"width": 1}], kernel=factory, ref_prog=lambda a, b: a + b)
    with set_autotune_inputs(a, a):
        result = tuned([{"width": 1}], kernel=factory, ref_prog=lambda a, b: a + b)
    np.testing.assert_allclose(result.kernel(a[:7], a[:7]), a[:7] * 2)


def test_early_stopping_gives_the_same_winner():
    configs = [{"loops": n} for n in (1, 20000, 2, 20000)]
    assert tuned(configs, run={"early_stop": True, "early_stop_factor": 3.0}).config["loops"] in (1, 2)


def test_the_text_s_matmul(own_cache):
    M, N, K = 96, 64, 64

    def kernel(block_M=None, block_N=None, block_K=None, num_stages=None, thread_num=None):
        return matmul(M, N, K, block_M, block_N, block_K, num_stages, thread_num)

    configs = [
        {"block_M": m, "block_N": 32, "block_K": k, "num_stages": s, "thread_num": 128}
        for m, k, s in ((32, 32, 0), (16, 64, 2))
    ]
    autotuner = AutoTuner.from_kernel(kernel=kernel, configs=configs).set_compile_args(
        out_idx=[-1], supply_type=tile.TensorSupplyType.Integer, ref_prog=lambda A, B: A @ B.T, skip_check=False,
        target=TARGET,
    )  # fmt: skip
    result = autotuner.run(warmup=3, rep=20)
    a, b = rand(M, K), rand(N, K, seed=1)
    np.testing.assert_allclose(result.kernel(a, b), a @ b.T, rtol=1e-4, atol=1e-4)
    assert result.config in configs


# ---- the decorator


def test_autotune_tunes_once_for_each_set_of_arguments(monkeypatch):
    @autotune(configs=[{"loops": 20000}, {"loops": 1}], warmup=1, rep=2)
    @tile.jit(out_idx=[-1], target=TARGET)
    def add(n, loops=1):
        return slow_add(n, loops)

    runs = []
    old = tuner.AutoTuner.run
    monkeypatch.setattr(tuner.AutoTuner, "run", lambda self, **k: runs.append(1) or old(self, **k))
    kernel = add(32)
    assert kernel.config == {"loops": 1} and add(32) is kernel and add(n=32) is kernel and len(runs) == 1
    assert add(16) is not kernel and len(runs) == 2
    a, b = rand(32), rand(32, seed=1)
    np.testing.assert_allclose(kernel(a, b), a * 2 + b, rtol=1e-5)
    # Who chooses the configuration gets it.
    assert add(32, loops=20000).config is None and len(runs) == 2


def test_arguments_that_do_not_cause_tuning(monkeypatch):
    @autotune(configs=[{"loops": 1}], warmup=1, rep=2, do_not_specialize=["n"])
    @tile.jit(out_idx=[-1], target=TARGET)
    def add(n, loops=1):
        return slow_add(n, loops)

    assert add(32) is add(16)
    with pytest.raises(ValueError, match="do_not_specialize names no parameter of slow_add: m"):
        autotune(configs=[{}], do_not_specialize=["m"])(tile.jit(slow_add))


def test_autotune_stands_above_jit():
    with pytest.raises(TypeError, match="autotune stands above jit"):
        autotune(configs=[{}])(slow_add)


@pytest.mark.slow
def test_configurations_for_a_device():
    """In the emulator: built, checked and timed in the process that owns the device."""
    from relaxish.runtime.nvidia import providers

    def factory(threads=16):
        return bound_add(64, threads)

    made = AutoTuner.from_kernel(factory, [{"threads": 16}, {"threads": 2048}, {"threads": 32}])
    made.set_compile_args(out_idx=-1, target="nvidia/geforce-rtx-3090").set_profile_args(ref_prog=lambda a, b: a + b)
    with providers.use("emulator"):
        result = made.run(warmup=1, rep=1)
        assert result.config["threads"] in (16, 32)
        np.testing.assert_allclose(result.kernel(rand(64), rand(64)), rand(64) * 2, rtol=1e-6)


@pytest.mark.slow
def test_configurations_for_opencl():
    if not device_enabled("opencl"):
        pytest.skip("there is no OpenCL device that compiles")

    def factory(threads=16):
        return bound_add(64, threads)

    made = AutoTuner.from_kernel(factory, [{"threads": 16}, {"threads": 32}])
    made.set_compile_args(out_idx=-1, target="opencl").set_profile_args(ref_prog=lambda a, b: a + b)
    result = made.run(warmup=1, rep=1, timeout=60)
    np.testing.assert_allclose(result.kernel(rand(64), rand(64)), rand(64) * 2, rtol=1e-6)
    assert result.kernel.get_profiler().do_bench(warmup=1, rep=2) > 0


def test_scalars_are_supplied():
    @S.prim_func
    def main(A: S.Buffer((16,), "float32"), k: S.int32, B: S.Buffer((16,), "float32")):
        for i in range(16):
            with S.block("B"):
                vi = S.axis.spatial(16, i)
                B[vi] = A[vi] * S.Cast("float32", k)

    result = tuned([{}], kernel=lambda: main, ref_prog=lambda a, k: a * k)
    np.testing.assert_allclose(result.kernel(rand(16), 3), rand(16) * 3, rtol=1e-6)


_ = scaled_add
