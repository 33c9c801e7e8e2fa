"""Script as text is data: nothing can be done from it but to make a program."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.script import from_source
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.script.parser.core.text_evaluator import TEXT_BUILTINS
from relaxish.support.errors import DiagnosticError

# Each would leave the mark `hacked` if it were evaluated as Python.
MARK = "open('hacked', 'w')"
IMPORT = "__import__('os').mkdir('hacked')"
# How people escape from evaluators that look away from builtins alone.
EXPRESSIONS = [
    MARK,
    IMPORT,
    "eval('1')",
    "exec('import os')",
    "compile('1', '', 'eval')",
    "globals()",
    "locals()",
    "vars(T)",
    "dir(T)",
    "getattr(T, 'sys')",
    "setattr(T, 'x', 1)",
    "type(T)",
    "object()",
    "input()",
    "breakpoint()",
    "help()",
    "memoryview(b'')",
    "print('x')",
    "().__class__.__base__.__subclasses__()",
    "(1).__class__",
    "T.__builtins__",
    "T.__dict__",
    "T.__loader__.load_module('os')",
    "T.prim_func.__globals__['__builtins__']",
    "T.prim_func(T.serial)",
    "I.ir_module(T.Var)",
    "R.function(T.serial)",
    "T.macro(T.serial)",
    "T.inline(T.serial)",
    "T.float32.__code__",
    "T.Var.__init__.__globals__",
    "T.Var.mro()",
    "T.Var._make",
    "T._namespace",
    "T.frame",
    "T.annotations",
    "R.nn.importlib",
    "R.nn.np",
    "R.record",
    "R.lowering",
    "R.inspect.inspect",
    "relaxish.runtime",
    "relaxish.runtime.load_module('x.so')",
    "relaxish.build",
    "relaxish.get_global_func('runtime.config_threadpool')",
    "relaxish.support.config.os",
    "relaxish.nd.array",
    "relaxish.rpc.connect('localhost', 1)",
    "tvm.runtime.load_module('x.so')",
    "tvm.relax.build",
    "tvm.tir.build",
    "tvm.ir.transform",
    "relaxish.script.parser",
    "'{0.__class__}'.format(T)",
    "'{0.__class__}'.format_map({})",
    "'%s' % (T,)",
    "f'{T.__class__}'",
    "f'{1}'",
    "(lambda: 1)()",
    "[lambda x: x][0]",
    "T.index_map(lambda i=open('hacked', 'w'): i)",
    "T.index_map(lambda *i: i)",
    f"T.index_map(lambda i: {MARK})",
    f"T.comm_reducer(lambda x, y: {IMPORT}, [T.float32(0)])",
    "[x for x in (1, 2)]",
    "{x for x in (1, 2)}",
    "{x: x for x in (1, 2)}",
    "sum(x for x in (1, 2))",
    "(x := 1)",
    "T.grid(*range(10**12))",
    "[*range(10**12)]",
    "list(range(10**12))",
    "tuple(range(10**12))",
    "max(range(10**12))",
    "2 ** 10 ** 10",
    "1 << 10**9",
    "'x' * 10**12",
    "[0] * 10**12",
    "10**12 * (0,)",
    "str(10**4000)[0] * 10**10",
    "range(10**12).__class__",
    "A.data.__class__",
    "A.__reduce__()",
    "A.dtype.__class__",
    "A.dtype.format",
    "A.shape.__class__",
]


@pytest.fixture(autouse=True)
def _no_marks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not os.path.exists("hacked")


def _tir(statement: str) -> str:
    return f"@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    {statement}\n"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression: str) -> None:
    for statement in (f"x = {expression}", f"T.evaluate({expression})", f"A[{expression}] = 1.0"):
        with pytest.raises(DiagnosticError):
            from_source(_tir(statement))


PLACES = {
    "statement": _tir(MARK),
    "index": _tir(f"A[{MARK}] = 1.0"),
    "value": _tir(f"A[0] = {IMPORT}"),
    "loop": _tir(f"for i in {MARK}:\n        pass"),
    "with": _tir(f"with {MARK}:\n        pass"),
    "with as": _tir(f"with {MARK} as x:\n        pass"),
    "condition": _tir(f"if {IMPORT}:\n        pass"),
    "while": _tir(f"while {IMPORT}:\n        pass"),
    "assertion": _tir(f"assert {IMPORT}, 'x'"),
    "message": _tir(f"assert A[0] > 1.0, {IMPORT}"),
    "return": _tir(f"return {IMPORT}"),
    "annotated": _tir(f"x: {IMPORT} = T.int32(1)"),
    "annotated value": _tir(f"x: T.int32 = {IMPORT}"),
    "augmented": _tir(f"A[0] += {IMPORT}"),
    "keyword": _tir(f"T.block_attr(**{{'a': {IMPORT}}})"),
    "import is nothing": _tir("import os\n    x = os.mkdir('hacked')"),
    "import from is nothing": _tir("from os import mkdir\n    mkdir('hacked')"),
    "parameter": f"@T.prim_func\ndef f(A: {IMPORT}):\n    pass\n",
    "parameter shape": f"@T.prim_func\ndef f(A: T.Buffer(({IMPORT},), 'float32')):\n    pass\n",
    "default": f"@T.prim_func\ndef f(n: T.int32 = {IMPORT}):\n    pass\n",
    "keyword only": f"@T.prim_func\ndef f(*, n: T.int32 = {IMPORT}):\n    pass\n",
    "result": f"@T.prim_func\ndef f(n: T.int32) -> {IMPORT}:\n    pass\n",
    "decorator": f"@{IMPORT}\ndef f(n: T.int32):\n    pass\n",
    "outer decorator": f"@{IMPORT}\n@T.prim_func\ndef f(n: T.int32):\n    {MARK}\n",
    "decorator option": f"@T.prim_func(private={IMPORT})\ndef f(n: T.int32):\n    pass\n",
    "decorator argument": f"@T.prim_func({IMPORT})\ndef f(n: T.int32):\n    {MARK}\n",
    "before it": f"x = {IMPORT}\n@T.prim_func\ndef f(n: T.int32):\n    pass\n",
    "expression before it": f"{IMPORT}\n@T.prim_func\ndef f(n: T.int32):\n    pass\n",
    "class decorator": f"@I.ir_module({IMPORT})\nclass M:\n    x = {MARK}\n",
    "class body": f"@I.ir_module\nclass M:\n    {IMPORT}\n",
    "class attribute": f"@I.ir_module\nclass M:\n    x = {IMPORT}\n",
    "class global infos": f"@I.ir_module\nclass M:\n    I.module_attrs({{'a': {IMPORT}}})\n",
    "graph value": f"@R.function\ndef f(x: R.Tensor((4,), 'float32')):\n    y = {IMPORT}\n    return y\n",
    "graph parameter": f"@R.function\ndef f(x: {IMPORT}):\n    return x\n",
    "graph result": f"@R.function\ndef f(x: R.Tensor((4,), 'float32')) -> {IMPORT}:\n    return x\n",
    "symbolic size": f"@R.function\ndef f(x: R.Tensor(({IMPORT!r},), 'float32')):\n    return x\n",
    "symbolic value": f"@R.function\ndef f(x: R.Prim(value={IMPORT!r})):\n    return x\n",
    "symbolic shape": f"@R.function\ndef f(x: R.Shape([{IMPORT!r}])):\n    return x\n",
    "match cast": "@R.function\ndef f(x: R.Object):\n"
    f"    y = R.match_cast(x, R.Tensor(({IMPORT!r},), 'float32'))\n    return y\n",
    "graph condition": f"@R.function\ndef f(x: R.Tensor((4,), 'float32')):\n    if {IMPORT}:\n        y = x\n    return y\n",
    "te": f"@R.function\ndef f(x: R.Tensor((4,), 'float32')):\n    y = R.emit_te({IMPORT}, x)\n    return y\n",
}


@pytest.mark.parametrize("place", PLACES)
def test_places(place: str) -> None:
    try:
        from_source(PLACES[place])
    except DiagnosticError:
        return
    # What does not evaluate its parts at all may be accepted, for nothing has happened then.
    assert place in ("outer decorator", "decorator argument", "class decorator", "keyword only", "default")


def test_annotations_outside_of_programs() -> None:
    with pytest.raises(ValueError, match="Undefined variable: __import__"):
        R.Tensor((IMPORT,), "float32").as_struct_info()


@pytest.mark.parametrize("text", ["(" * 5000 + ")" * 5000, "x = " + "-" * 200_000 + "1", "x = 1\0", "a" * (1 << 27)])
def test_absurd_texts(text: str) -> None:
    with pytest.raises(DiagnosticError):
        from_source(text)


def test_deep_expressions() -> None:
    with pytest.raises(DiagnosticError):
        from_source(_tir("A[0] = " + "+".join(["1.0"] * 60_000)))


def test_numbers_cannot_grow_by_statements() -> None:
    body = "x0 = T.meta_var(2 ** 8000)\n" + "\n".join(f"    x{i + 1} = T.meta_var(x{i} * x{i})" for i in range(40))
    with pytest.raises(DiagnosticError, match="bits"):
        from_source(_tir(body))


def test_names_of_python_in_text_are_few() -> None:
    assert set(TEXT_BUILTINS) == {
        "abs", "bool", "dict", "float", "int", "len", "list", "max", "min", "range", "round", "slice", "str", "tuple",
    }  # fmt: skip


def test_modules_handed_over_show_no_other_modules() -> None:
    assert "T.float32(2.0)" in from_source(_tir("A[0] = T.float32(math.sqrt(4.0))"), {"T": T, "math": math}).script()
    for expression in ("np.os.getcwd()", "np.ctypeslib.ctypes", "np.lib.sys", "np.__builtins__"):
        with pytest.raises(DiagnosticError):
            from_source(_tir(f"x = {expression}"), {"T": T, "np": np})


def test_what_the_caller_hands_over_may_be_used() -> None:
    config = SimpleNamespace(n=3)
    made = from_source(
        _tir("for i in range(n):\n        A[i] = scale(i)"),
        {"T": T, "n": config.n, "scale": lambda i: T.Cast("float32", i)},
    )
    assert isinstance(made, tir.PrimFunc) and made.body.extent.value == 3


def test_what_prints_parses_again() -> None:
    """Lambdas of reducers and index maps, metadata, attributes, targets: all a printed program needs."""

    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

        @T.prim_func
        def rows(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
            T.func_attr({"target": T.target("llvm"), "tir.noalias": True})
            for i in range(4):
                for k in T.thread_binding(8, thread="threadIdx.x"):
                    with T.block("b"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        with T.init():
                            B[vi] = T.float32(0)
                        B[vi] = B[vi] + A[vi, vk]

        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            y = R.layout_transform(x, index_map=lambda i, j: (j, i))
            z = R.add(y, R.const(np.arange(5, dtype="float32")[:1]))
            w = R.nn.softmax(z)
            return R.reshape(w, R.shape([n * 8]))

    text = Module.script(show_meta=True)
    assert "lambda" in text and "metadata" in text
    assert_structural_equal(from_source(text), Module)


def test_functions_of_the_user_are_trusted() -> None:
    """A decorated function is code of its author: Python's own functions and closures work in it as before."""
    sizes = {"n": 4}

    def helper(i):
        return T.Cast("float32", i)

    @T.prim_func
    def func(A: T.Buffer((sizes["n"],), "float32")):
        for i in range(sum([sizes[k] for k in sorted(sizes)])):
            A[i] = helper(i) + T.float32(ord("a"))

    assert func.body.extent.value == 4

    @R.function
    def graph(x: R.Tensor((len(os.sep), 4), "float32")):
        return R.reshape(x, (eval("4"),))

    assert isinstance(graph, relax.Function)


def test_macros_handed_over_to_text_are_code_of_their_author() -> None:
    @T.macro
    def fill(A, n):
        for i in range(sum([n, 0])):
            A[i] = T.float32(0)

    made = from_source(_tir("fill(A, 4)"), {"T": T, "fill": fill})
    assert made.body.extent.value == 4
    with pytest.raises(DiagnosticError):
        from_source(_tir("fill(A, sum([4]))"), {"T": T, "fill": fill})


def test_expressions_of_the_package() -> None:
    made = from_source(_tir("A[relaxish.tir.const(1, 'int32')] = tvm.tir.max(A[0], tvm.tir.FloatImm('float32', 2.0))"))
    assert isinstance(made.body.value, tir.Max)


def test_trusted_text() -> None:
    assert (
        from_source(_tir("for i in range(sum([4])):\n        A[i] = T.float32(0)"), trusted=True).body.extent.value == 4
    )
    assert relaxish.script.parse is from_source or callable(relaxish.script.parse)
