"""A hand-made executable over kernels compiled with the system's C compiler, for tests of the runtime."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from relaxish.runtime import KernelSpec, ParamSpec, ShapeVarSource, SharedLibrary
from relaxish.runtime.bytecode.plan import ExecutionPlan, KernelCall, Operand, ResultTensor, Slot, TensorSpec

COMPILER = shutil.which("gcc") or shutil.which("cc")

SOURCE = r"""
#include <stdint.h>
typedef union { int64_t i; double f; float *p; } slot;
int32_t add4(float *a, float *b, float *c) { for (int i = 0; i < 4; ++i) c[i] = a[i] + b[i]; return 0; }
int32_t add4__packed(slot *s) { return add4(s[0].p, s[1].p, s[2].p); }
int32_t relu4(float *a, float *c) { for (int i = 0; i < 4; ++i) c[i] = a[i] > 0 ? a[i] : 0; return 0; }
int32_t relu4__packed(slot *s) { return relu4(s[0].p, s[1].p); }
int32_t broken(float *a) { return 7; }
int32_t broken__packed(slot *s) { return broken(s[0].p); }
int32_t scale_n(float *a, double k, float *c, int64_t n) { for (int64_t i = 0; i < n; ++i) c[i] = a[i] * k; return 0; }
int32_t scale_n__packed(slot *s) { return scale_n(s[0].p, s[1].f, s[2].p, s[3].i); }
int32_t main_entry(slot *s) {
  float *t = (float *)((char *)s[3].p + 64);
  int32_t code = add4(s[0].p, s[2].p, t);
  if (code) return (1 << 8) | (code & 255);
  code = relu4(t, s[1].p);
  if (code) return (2 << 8) | (code & 255);
  return 0;
}
int32_t broken_entry(slot *s) { return (1 << 8) | 7; }
"""

VEC4 = ParamSpec("tensor", "float32", (4,))
SPECS = {
    "add4": KernelSpec("add4", (VEC4, VEC4, VEC4)),
    "relu4": KernelSpec("relu4", (VEC4, VEC4)),
    "broken": KernelSpec("broken", (VEC4,)),
    "scale_n": KernelSpec(
        "scale_n",
        (
            ParamSpec("tensor", "float32", ("n",)),
            ParamSpec("scalar", "float64"),
            ParamSpec("tensor", "float32", ("n",)),
        ),
        (ShapeVarSource("n", 0, 0),),
    ),
}

PLAN = ExecutionPlan(
    "main",
    "main_entry",
    (TensorSpec("x", (4,), "float32"),),
    (Slot("input", 0), Slot("output", 0, 16), Slot("constant", 0), Slot("workspace", 0, 128)),
    (
        KernelCall("add4", (Operand.pointer(0), Operand.pointer(2), Operand.pointer(3, 64))),
        KernelCall("relu4", (Operand.pointer(3, 64), Operand.pointer(1))),
    ),
    ResultTensor(1, 0, (4,), "float32"),
)


def link(path: str, objects) -> None:
    """Object files to a shared object."""
    folder = Path(path).parent
    names = []
    for i, data in enumerate(objects):
        name = folder / f"obj{i}.o"
        name.write_bytes(data)
        names.append(str(name))
    subprocess.run([COMPILER, "-shared", "-o", path, *names], check=True)


def build(folder: Path) -> tuple[SharedLibrary, bytes]:
    """The loaded library and its object file."""
    (folder / "k.c").write_text(SOURCE)
    subprocess.run([COMPILER, "-O2", "-fPIC", "-c", "k.c", "-o", "k.o"], cwd=folder, check=True)
    data = (folder / "k.o").read_bytes()
    link(str(folder / "libk.so"), [data])
    return SharedLibrary(str(folder / "libk.so")), data
