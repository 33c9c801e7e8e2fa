"""Compilers, archives and worker processes that scripts use from ``relaxish.contrib``."""

from __future__ import annotations

import ctypes
import os
import tarfile
import time

import pytest

from relaxish.contrib import cc, nvcc, popen_pool, tar, utils
from relaxish.target import Target

needs_compiler = pytest.mark.skipif(cc.get_cc() is None, reason="no C++ compiler")


@needs_compiler
def test_linking():
    folder = utils.tempdir()
    for name, value in (("one", 1), ("two", 2)):
        with open(folder.relpath(f"{name}.c"), "w") as file:
            file.write(f"int {name}(void) {{ return {value}; }}")
    both = [folder.relpath("one.c"), folder.relpath("two.c")]
    link = cc.cross_compiler("gcc", options=["-O1"], add_files=both[1:])
    link(folder.relpath("both.so"), both[:1])
    library = ctypes.CDLL(folder.relpath("both.so"))
    assert library.one() + library.two() == 3
    assert link.output_format == "so" and link.get_target_triple()
    with pytest.raises(RuntimeError, match="Compilation error"):
        cc.create_shared(folder.relpath("x.so"), folder.relpath("nothing.c"))
    assert cc.get_target_by_dump_machine("no-such-compiler")() is None


def test_archives():
    folder = utils.tempdir()
    for name in ("a", "b"):
        with open(folder.relpath(name), "w") as file:
            file.write(name)
    tar.tar(folder.relpath("all.tar"), [folder.relpath("a"), folder.relpath("b")])
    files = tar.normalize_file_list_by_unpacking_tars(folder, ["plain", folder.relpath("all.tar")])
    assert [os.path.basename(path) for path in files] == ["plain", "a", "b"]
    with pytest.raises(ValueError, match="two files"):
        tar.tar(folder.relpath("no.tar"), [folder.relpath("a"), folder.relpath("a")])
    with tarfile.open(folder.relpath("bad.tar"), "w") as archive:
        archive.add(folder.relpath("a"), arcname="../outside")
    with pytest.raises(tarfile.TarError):
        tar.untar(folder.relpath("bad.tar"), folder.relpath("out"))


def test_what_architectures_can_do():
    assert nvcc.get_target_compute_version(Target("cuda -arch=sm_86", host="llvm")) == "8.6"
    with Target("cuda -arch=sm_90a", host="llvm"):
        assert nvcc.get_target_compute_version() == "9.0" and nvcc.have_tensorcore()
    assert nvcc.have_fp16("5.3") and not nvcc.have_fp16("5.2") and nvcc.have_int8("6.1")
    assert nvcc.have_bf16("8.0") and nvcc.have_fp8("8.9") and not nvcc.have_fp8("8.6") and nvcc.have_fp4("10.0")
    with pytest.raises(RuntimeError):
        nvcc.parse_compute_version("x.y")


def _square(x):
    return x * x


def test_worker_processes():
    worker = popen_pool.PopenWorker(maximum_uses=2)
    for x in range(3):
        worker.send(_square, [x])
        assert worker.recv() == x * x
    worker.send(time.sleep, [30], timeout=0.2)
    with pytest.raises(TimeoutError):
        worker.recv()
    assert not worker.is_alive()
    worker.send(os._exit, [1])
    with pytest.raises(ChildProcessError):
        worker.recv()
    worker.send(int, ["x"])
    with pytest.raises(ValueError, match="invalid literal"):
        worker.recv()
    worker.kill()


def test_pools_of_workers():
    pool = popen_pool.PopenPoolExecutor(max_workers=1, timeout=20)
    assert pool.submit(_square, 7).result() == 49
    kinds = [(r.status, r.value) for r in pool.map_with_error_catching(_square, [2, "a"])]
    assert kinds[0] == (popen_pool.StatusKind.COMPLETE, 4)
    assert kinds[1][0] == popen_pool.StatusKind.EXCEPTION and isinstance(kinds[1][1], TypeError)


def test_bits_of_bfloat16() -> None:
    import ml_dtypes
    import numpy as np

    from relaxish.contrib.tvmjs import _convert_f32_to_bf16

    values = np.random.default_rng(5).standard_normal(1000).astype("float32") * 1e3
    np.testing.assert_array_equal(_convert_f32_to_bf16(values), values.astype(ml_dtypes.bfloat16).view("uint16"))
