"""Code and its constants stay together in a process whose address space is full of gaps, as that of torch with CUDA is."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

# Code that fits nowhere but below 3 GB that are taken, constants that fit into a gap of one page above them.
PROGRAM = textwrap.dedent('''
    import ctypes, mmap

    from relaxish.backend.llvm import engine
    from relaxish.target import Target

    text = """target triple = "TRIPLE"
    module asm ".text"
    module asm ".zero 67108864"
    @table = private constant [4 x float] [float 1.5, float 2.5, float 3.5, float 4.5]
    define float @pick(i64 %i) {
      %p = getelementptr [4 x float], ptr @table, i64 0, i64 %i
      %v = load float, ptr %p
      ret float %v
    }
    """
    made = engine.compile_text(text, Target("llvm"))
    session = engine.session()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    RESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    for _ in range(64):  # gaps of one page
        at = libc.mmap(None, 3 * 4096, 0, RESERVED, -1, 0)
        libc.munmap(at + 4096, 4096)
    libc.mmap(None, 3 << 30, 0, RESERVED, -1, 0)
    keep, found = session.load(made, ["pick"])
    pick = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(found["pick"])
    assert [pick(i) for i in range(4)] == [1.5, 2.5, 3.5, 4.5]
    print("together")
''')


@pytest.mark.skipif(sys.platform != "linux", reason="takes address space with Linux's mmap")
def test_code_and_constants_lie_together():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "together", done.stderr[-2000:]
