"""The compilers of CUDA C++: choosing one, the cache, reports, and looking at machine code."""

from __future__ import annotations

from importlib.resources import files

import pytest

from relaxish.backend.common import object_cache
from relaxish.backend.cuda.compile import headers, nvrtc, sass
from relaxish.backend.cuda.compile.images import Image, KernelResources
from relaxish.backend.cuda.codegen.preamble import preamble
from relaxish.ir.transform import PassContext
from relaxish.support import config
from relaxish.support.errors import MissingExtraError, RelaxishError

SOURCE = """
extern "C" __global__ void __launch_bounds__(64) twice(const float* __restrict__ a, float* __restrict__ b) {
  __shared__ float s[64];
  s[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = s[63 - threadIdx.x] * 2.0f;
}
"""
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 16 bytes cumulative stack size, 49152 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, 368 bytes cmem[0]
"""
needs_compiler = pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")


class FakeCompiler:
    """Counts what it is asked; refuses sources with ``bad`` in them."""

    name = "fake"

    def __init__(self, numbers=(80, 90)):
        self.numbers = numbers
        self.asked = []

    def version(self):
        return "fake 1.0"

    def architectures(self):
        return self.numbers

    def compile(self, source, arch, kind):
        self.asked.append((source, arch, kind))
        if "bad" in source:
            raise RelaxishError(f"the CUDA source does not compile for {arch}:\nline 1: error")
        return Image(f"{kind} of {source} for {arch}".encode(), LOG)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    compiler = FakeCompiler()
    monkeypatch.setattr(nvrtc, "compilers", lambda: (compiler,))
    nvrtc._compiler.cache_clear()
    with config.CACHE_DIR.override(tmp_path), config.CACHE.override(True):
        yield compiler
    nvrtc._compiler.cache_clear()


def test_images_are_kept(fake):
    for _ in range(2):
        assert nvrtc.compile_cubin("x", "sm_80") == b"cubin of x for sm_80"
    assert nvrtc.kernel_resources("x", "sm_80")["second"] == KernelResources(10)
    assert len(fake.asked) == 1
    nvrtc.compile_cubin("x", "sm_90a")
    assert nvrtc.compile_ptx("x", "sm_80") == "ptx of x for sm_80"
    assert [(arch, kind) for _, arch, kind in fake.asked] == [("sm_80", "cubin"), ("sm_90a", "cubin"), ("sm_80", "ptx")]


def test_without_the_cache(fake):
    with config.CACHE.override(False):
        nvrtc.compile_cubin("x", "sm_80")
        nvrtc.compile_cubin("x", "sm_80")
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3], lambda b: b"", lambda b: b[:40] + b"!" + b[41:], lambda b: b"RXOBJ1\n"]
)
def test_damaged_entries_are_made_again(fake, tmp_path, damage):
    nvrtc.compile_cubin("x", "sm_80")
    [path] = [p for p in (tmp_path / "objects").rglob("*") if p.is_file()]
    path.write_bytes(damage(path.read_bytes()))
    assert nvrtc.compile_cubin("x", "sm_80") == b"cubin of x for sm_80"
    assert len(fake.asked) == 2 and not [p for p in path.parent.iterdir() if p.name.startswith(".new")]


def test_another_version_is_another_key():
    keys = {object_cache.key_of("x", "cuda cubin", "sm_80", version) for version in ("nvrtc 12.8", "nvrtc 13.0")}
    assert len(keys) == 2 and object_cache.key_of("a", "bc") != object_cache.key_of("a", "b", "c")


def test_architectures(fake):
    with pytest.raises(
        RelaxishError, match=r"fake 1.0 cannot compile for sm_50; what can be compiled for: sm_80, sm_90"
    ):
        nvrtc.compile_cubin("x", "sm_50")
    for wrong in ("80", "compute_80", "sm_8x", ""):
        with pytest.raises(RelaxishError, match="no CUDA architecture"):
            nvrtc.compile_cubin("x", wrong)
    assert nvrtc.supported_architectures() == (80, 90)


def test_the_second_compiler_steps_in(monkeypatch, fake, tmp_path):
    newer = FakeCompiler((90, 100))
    monkeypatch.setattr(nvrtc, "compilers", lambda: (fake, newer))
    nvrtc._compiler.cache_clear()
    nvrtc.compile_cubin("x", "sm_90")
    nvrtc.compile_cubin("x", "sm_100a")
    assert [a for _, a, _ in fake.asked] == ["sm_90"] and [a for _, a, _ in newer.asked] == ["sm_100a"]


def test_without_compilers(monkeypatch):
    monkeypatch.setattr(nvrtc, "compilers", lambda: ())
    monkeypatch.setattr(nvrtc, "available", lambda: False)
    nvrtc._compiler.cache_clear()
    with pytest.raises(MissingExtraError, match="cuda"):
        nvrtc.compile_cubin("x", "sm_80")
    nvrtc._compiler.cache_clear()


@pytest.fixture
def fresh_search():
    """The search for headers begins anew, before and after."""
    for search in (headers.nvrtc_folder, headers.include_folders):
        search.cache_clear()
    yield
    for search in (headers.nvrtc_folder, headers.include_folders):
        search.cache_clear()


def folder_with(path, *files):
    for file in files:
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).touch()
    return path


RUNTIME = ("include/cuda_fp16.h", "include/cuda_fp8.h")
LIBRARY = "lib/libnvrtc.so.13"


@pytest.mark.parametrize("crt, taken", [(True, ["cu13"]), (False, ["cu13", "toolkit"])])
def test_headers_that_the_wheels_lack(fresh_search, monkeypatch, tmp_path, crt, taken):
    """torch brings the wheels of NVRTC and of the run time, but not nvidia-cuda-crt."""
    wheel = folder_with(tmp_path / "cu13", LIBRARY, *RUNTIME, *(["include/crt/mma.h"] if crt else []))
    toolkit = folder_with(tmp_path / "toolkit", *RUNTIME, "include/crt/mma.h")
    monkeypatch.setattr(headers, "wheel_folders", lambda: [wheel])
    monkeypatch.setattr(headers, "_toolkits", lambda: [tmp_path / "nowhere", toolkit])
    assert headers.nvrtc_folder() == wheel
    assert [p.parent.name for p in headers.include_folders()] == taken


def test_headers_of_older_wheels(fresh_search, monkeypatch, tmp_path):
    """Packages of CUDA 12 have a folder each; NVRTC's is the one without headers."""
    nvrtc_wheel = folder_with(tmp_path / "cuda_nvrtc", "lib/libnvrtc.so.12")
    runtime = folder_with(tmp_path / "cuda_runtime", *RUNTIME)
    monkeypatch.setattr(headers, "wheel_folders", lambda: [nvrtc_wheel, runtime])
    monkeypatch.setattr(headers, "_toolkits", list)
    assert headers.nvrtc_folder() == nvrtc_wheel and headers.include_folders() == (runtime / "include",)
    monkeypatch.setattr(headers, "wheel_folders", lambda: [nvrtc_wheel])
    headers.include_folders.cache_clear()
    assert not nvrtc.NVRTC.present()  # without headers it compiles next to nothing: nvcc is the better choice


def test_many_at_once(fake):
    made = nvrtc.compile_many([(s, "sm_80") for s in ("a", "bad", "c")], threads=2)
    assert made[0] == b"cubin of a for sm_80" and made[2] == b"cubin of c for sm_80"
    assert isinstance(made[1], RelaxishError) and "does not compile for sm_80" in str(made[1])


def test_output_folder(fake, tmp_path):
    folder = tmp_path / "out"
    with PassContext(config={"cuda.kernels_output_dir": str(folder)}):
        nvrtc.compile_cubin("one", "sm_80")
        nvrtc.compile_cubin("two", "sm_80")
        nvrtc.compile_ptx("one", "sm_80")
    assert (folder / "tvm_kernels.cu").read_text() == "one"
    assert (folder / "tvm_kernels.cubin").read_bytes() == b"cubin of one for sm_80"
    assert (folder / "tvm_kernels.ptx").read_bytes() == b"ptx of one for sm_80"
    [other] = set(folder.glob("tvm_kernels_*.cu"))
    assert other.read_text() == "two" and other.with_suffix(".cubin").exists()


def test_resources():
    found = Image(b"", LOG).resources()
    assert found == {"first": KernelResources(255, 49152, 16, 8, 12, 2), "second": KernelResources(10)}
    assert found["first"].spills and not found["second"].spills
    image = Image(b"\x7fELF\0", LOG)
    assert Image.unpacked(image.packed()) == image


SASS = """
	code for sm_80
		Function : twice
	.headerflags	@"EF_CUDA_SM80"
        /*0000*/                   MOV R1, c[0x0][0x28] ;                 /* 0x00000a0000017a02 */
        /*0010*/                   LDG.E.128.CONSTANT R4, [R2.64] ;       /* 0x0 */
        /*0020*/              @!P0 BRA `(.L_x_1) ;
        /*0030*/              @UP1 UMOV UR4, 0x1 ;
        /*0040*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0050*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
		Function : other
        /*0000*/                   EXIT ;
"""


def test_instructions(monkeypatch):
    monkeypatch.setattr(sass, "disassemble", lambda _: SASS)
    found = sass.sass_instructions(b"")
    assert found == {"MOV": 1, "LDG.E.128.CONSTANT": 1, "BRA": 1, "UMOV": 1, "HMMA.16816.F32": 2, "EXIT": 1}
    assert sass.mnemonics(found)["HMMA"] == 2 and sass.sass_instructions(b"", "other") == {"EXIT": 1}


def test_without_a_disassembler(monkeypatch):
    monkeypatch.setattr(sass, "_tool", lambda: None)
    with pytest.raises(MissingExtraError, match="triton"):
        sass.disassemble(b"")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("kind", nvrtc.compilers(), ids=lambda c: c.name)
def test_each_compiler(kind):
    image = kind.compile(SOURCE, "sm_80", "cubin")
    assert image.data[:4] == b"\x7fELF"
    found = image.resources()["twice"]
    assert 4 <= found.registers <= 32 and found.shared_bytes == 256 and found.barriers == 1 and not found.spills
    assert b".target sm_90a" in kind.compile(SOURCE, "sm_90a", "ptx").data
    assert 80 in kind.architectures() and kind.name.lower() in kind.version()
    with pytest.raises(RelaxishError, match="does not compile for sm_80:\n.*error"):
        kind.compile("nonsense", "sm_80", "cubin")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90a"])
def test_device_code_of_ours_compiles_for_every_architecture(arch):
    """Also for devices that only store what a section computes with: WMMA kernels of half precision name bfloat16."""
    sections = sorted(
        file.name.removeprefix("preamble_").removesuffix(".cuh")
        for file in files("relaxish.backend.cuda").iterdir()
        if file.name.startswith("preamble_") and file.name.endswith(".cuh")
    )
    if int(arch[3:5]) in nvrtc.supported_architectures():
        assert nvrtc.compile_cubin(preamble(sections) + SOURCE, arch)[:4] == b"\x7fELF"


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(not sass.available(), reason="no disassembler (the triton package has one)")
def test_machine_code():
    image = nvrtc.compile_cubin(SOURCE, "sm_90a")
    assert "twice" in sass.disassemble(image)
    found = sass.mnemonics(sass.sass_instructions(image, "twice"))
    assert found["LDG"] == 1 and found["STS"] == 1 and found["LDS"] == 1 and found["BAR"] == 1
    with pytest.raises(RelaxishError, match="cannot read the image"):
        sass.disassemble(b"nothing")
