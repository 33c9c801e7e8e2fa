"""Descriptions of devices from targets alone."""

import pytest

from relaxish import Target
from relaxish.carver import GpuModel
from relaxish.carver.arch import (
    CDNA,
    CPU,
    CUDA,
    METAL,
    RDNA,
    TileDevice,
    auto_infer_current_arch,
    get_arch,
    has_mma_support,
    is_ada_arch,
    is_ampere_arch,
    is_cdna_arch,
    is_cpu_arch,
    is_cuda_arch,
    is_hopper_arch,
    is_metal_arch,
    is_rdna_arch,
    is_tensorcore_supported_precision,
    is_volta_arch,
)


def test_what_a_cuda_device_has():
    arch = CUDA("nvidia/geforce-rtx-4090")
    assert (arch.reg_cap, arch.smem_cap, arch.max_smem_usage, arch.sm_partition) == (65536, 48 << 10, 96 << 10, 4)
    assert (arch.compute_max_core, arch.warp_size, arch.sm_version, arch.compute_capability) == (128, 32, 89, "89")
    assert arch.transaction_size == [32, 128] and arch.bandwidth == [750, 12080] and arch.platform == "CUDA"
    assert arch.get_avaliable_tensorintrin_shapes() == [[16, 16], [16, 16]]
    assert arch.l2_cache_size_bytes == 72 << 20
    assert CUDA("nvidia/nvidia-a100").compute_max_core == 108 and CUDA("nvidia/nvidia-h100").compute_max_core == 132
    assert CUDA(Target("cuda -arch=sm_86")).sm_version == 86
    # Opt-in shared memory is no measure for tiles: every launch has 48 KiB.
    assert CUDA({"kind": "cuda", "arch": "sm_80", "max_shared_memory_per_block": 166912}).smem_cap == 48 << 10


def test_other_devices():
    assert CDNA("rocm -mcpu=gfx942").reg_cap == 32768 and CDNA("rocm -mcpu=gfx942").bandwidth == [1300, 14000]
    assert CDNA("rocm -mcpu=gfx950").smem_cap == 160 << 10 and CDNA("rocm -mcpu=gfx90a").smem_cap == 64 << 10
    assert RDNA("rocm -mcpu=gfx1100").warp_size == 32 and METAL("metal").platform == "METAL"
    cpu = CPU("llvm -num-cores=3")
    assert cpu.compute_max_core == 0 and cpu.transaction_size == [0, 0] and cpu.model.cores == 3
    for text, kind in (
        ("cuda -arch=sm_80", CUDA),
        ("rocm -mcpu=gfx942", CDNA),
        ("rocm -mcpu=gfx1100", RDNA),
        ("metal", METAL),
        ("llvm", CPU),
    ):
        assert type(get_arch(text)) is kind and isinstance(get_arch(Target(text)), TileDevice)
    assert get_arch("opencl").platform == "OPENCL"
    device = get_arch("llvm")
    assert get_arch(device) is device


def test_generations():
    questions = (is_volta_arch, is_ampere_arch, is_ada_arch, is_hopper_arch)
    for version, answer in ((70, 0), (75, 0), (80, 1), (86, 1), (89, 2), (90, 3)):
        arch = CUDA(f"cuda -arch=sm_{version}")
        assert [q(arch) for q in questions] == [i == answer for i in range(4)]
        assert is_cuda_arch(arch) and has_mma_support(arch) == (version >= 80)
    assert is_hopper_arch(CUDA("cuda -arch=sm_90a"))
    others = [get_arch(t) for t in ("rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "metal", "llvm")]
    for i, ask in enumerate((is_cdna_arch, is_rdna_arch, is_metal_arch, is_cpu_arch)):
        assert [ask(arch) for arch in others] == [i == k for k in range(4)]
        assert not ask(CUDA("cuda -arch=sm_80"))
    assert not has_mma_support(others[0])


@pytest.mark.parametrize(
    "pair, versions",
    [
        (("float16", "float32"), {70, 80, 89, 90}), (("float16", "float16"), {70, 80, 89, 90}),
        (("bfloat16", "float32"), {80, 89, 90}), (("int8", "int32"), {80, 89, 90}), (("int4", "int32"), {80}),
        (("int1", "int32"), {80}), (("float8_e4m3", "float32"), {89, 90}), (("float8_e5m2", "float32"), {89, 90}),
        (("float32", "float32"), set()), (("bfloat16", "bfloat16"), set()),
    ],
)  # fmt: skip
def test_precisions(pair, versions):
    for version in (70, 80, 89, 90):
        assert is_tensorcore_supported_precision(*pair, CUDA(f"cuda -arch=sm_{version}")) == (version in versions)


def test_the_current_device():
    with Target("nvidia/nvidia-a100"):
        arch = auto_infer_current_arch()
        assert is_ampere_arch(arch) and CUDA("cuda").compute_max_core == 108
    with Target("llvm"):
        assert is_cpu_arch(auto_infer_current_arch())
    assert isinstance(auto_infer_current_arch(), TileDevice)
    assert CUDA("cuda").sm_version >= 70  # of this machine, else a common one


def test_one_table_of_chips():
    for tag, cores in (
        ("nvidia/geforce-rtx-4060", 24),
        ("nvidia/geforce-rtx-3080", 68),
        ("nvidia/jetson-agx-orin-64gb", 16),
    ):
        assert GpuModel.of_target(Target(tag)).multiprocessors == CUDA(tag).compute_max_core == cores
    # Other makers' devices are not taken for NVIDIA's.
    assert GpuModel.of_target(Target("rocm -mcpu=gfx942")).multiprocessors == 304
    assert GpuModel.of_target(Target("metal")) != GpuModel.of_target(Target("cuda -arch=sm_75"))


def test_mistakes_say_what_to_do():
    with pytest.raises(ValueError, match="get_arch"):
        CUDA("llvm")
    with pytest.raises(ValueError, match="gfx10"):
        RDNA("rocm -mcpu=gfx942")
    with pytest.raises(ValueError, match="no tensor cores"):
        is_tensorcore_supported_precision("float16", "float32", get_arch("llvm"))
    with pytest.raises(ValueError):
        CUDA("nvidia/geforce-rtx-9999")


def test_code_for_a_named_cpu_does_not_depend_on_this_machine(monkeypatch):
    from relaxish.carver import CpuModel, machine

    named = CpuModel.of_target(Target("llvm -mcpu=skylake-avx512 -num-cores=2"))
    monkeypatch.setattr(machine, "host_caches", lambda: (1, 2, 3))
    assert CpuModel.of_target(Target("llvm -mcpu=skylake-avx512 -num-cores=2")) == named
    assert named.caches == (32 << 10, 1 << 20, 16 << 20)
    assert CpuModel.of_target(Target("llvm")).caches == (1, 2, 3)


def test_names_under_tile():
    from relaxish import carver, tile
    from relaxish.tile.carver.arch import CUDA as under_tile
    from relaxish.tile.carver.roller.rasterization import NoRasterization
    from relaxish.tile.carver.template import MatmulTemplate

    assert under_tile is CUDA and tile.carver is carver
    assert MatmulTemplate is carver.MatmulTemplate and NoRasterization is carver.roller.NoRasterization
