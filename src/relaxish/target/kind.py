"""Target kinds: the device a kind runs on, its default keys and the schema of its attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..ir.errors import CheckValueError

# DLPack device types.
K_DL_CPU = 1
K_DL_CUDA = 2
K_DL_OPENCL = 4
K_DL_VULKAN = 7
K_DL_METAL = 8
K_DL_ROCM = 10
K_DL_EXT_DEV = 12
K_DL_HEXAGON = 14
K_DL_WEBGPU = 15

Config = dict[str, Any]
Preprocessor = Callable[[Config], Config]


@dataclass(frozen=True)
class Option:
    """The type of one attribute (int, bool, str, float, list, target, runtime, pool, ...) and its default."""

    type: str
    default: Any = None


@dataclass
class TargetKind:
    """A family of devices sharing one code generator, for example ``llvm`` or ``cuda``."""

    name: str
    default_device_type: int
    default_keys: tuple[str, ...] = ()
    schema: dict[str, Option] = field(default_factory=dict)
    preprocess: Preprocessor | None = None

    @property
    def options(self) -> dict[str, str]:
        """Attribute names and the names of their types."""
        return {name: option.type for name, option in self.schema.items()}

    @staticmethod
    def options_from_name(kind_name: str) -> dict[str, str]:
        """The attributes of the kind called ``kind_name``."""
        return get_kind(kind_name).options

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TargetKind) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("TargetKind", self.name))


_COMMON: dict[str, Option] = {
    "keys": Option("list"),
    "tag": Option("str"),
    "device": Option("str"),
    "model": Option("str"),
    "libs": Option("list"),
    "host": Option("target"),
    "from_device": Option("int"),
    "target_device_type": Option("int"),
    "runtime": Option("runtime"),
    "pool": Option("pool"),
}
_KINDS: dict[str, TargetKind] = {}


def register_kind(
    name: str,
    device_type: int,
    keys: tuple[str, ...] = (),
    options: dict[str, Option] | None = None,
    preprocess: Preprocessor | None = None,
) -> TargetKind:
    """Add a kind. Registering a name again replaces the kind, so a plug-in may extend its schema."""
    kind = TargetKind(name, device_type, keys, {**_COMMON, **(options or {})}, preprocess)
    _KINDS[name] = kind
    return kind


def get_kind(name: str) -> TargetKind:
    """The kind called ``name``; ValueError naming the near misses when there is none."""
    kind = _KINDS.get(name)
    if kind is None:
        import difflib

        near = difflib.get_close_matches(name, _KINDS, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; known kinds: {', '.join(sorted(_KINDS))}"
        raise CheckValueError(f'Target kind "{name}" is not defined{hint}')
    return kind


def has_kind(name: str) -> bool:
    """Whether a kind of this name exists."""
    return name in _KINDS


def list_kinds() -> list[str]:
    """Names of all kinds, in order of registration."""
    return list(_KINDS)


def _of(type_name: str, names: str) -> dict[str, Option]:
    return {name: Option(type_name) for name in names.split()}


def _defaults(**values: int | bool) -> dict[str, Option]:
    return {name: Option("bool" if isinstance(v, bool) else "int", v) for name, v in values.items()}


def _fill_cuda(config: Config) -> Config:
    arch = config.get("arch")
    if arch is None:
        from .detect import host_cuda_arch

        config["arch"] = host_cuda_arch() or "sm_50"
    elif not str(arch).startswith("sm_"):
        raise CheckValueError(f'CUDA target gets an invalid CUDA arch: "-arch={arch}"; it must look like sm_80')
    return config


def _fill_nvptx(config: Config) -> Config:
    config.setdefault("mcpu", "sm_50")
    if not str(config["mcpu"]).startswith("sm_"):
        raise CheckValueError(f'NVPTX target gets an invalid CUDA arch: "-mcpu={config["mcpu"]}"')
    config.setdefault("mtriple", "nvptx64-nvidia-cuda")
    return config


def _fill_rocm(config: Config) -> Config:
    config.setdefault("mcpu", "gfx900")
    config.setdefault("mtriple", "amdgcn-amd-amdhsa-hcc")
    if str(config["mcpu"])[3:4] == "1":
        config.setdefault("thread_warp_size", 32)
    return config


def _fill_cpu(config: Config) -> Config:
    if "mtriple" not in config and "mcpu" not in config:
        from .detect import host_triple

        config["mtriple"] = host_triple()
    return config


def _register_host_kinds() -> None:
    register_kind(
        "llvm",
        K_DL_CPU,
        ("cpu",),
        {
            **_of("list", "mattr cl-opt"),
            **_of("str", "mcpu mtriple mfloat-abi mabi jit"),
            **_of("int", "num-cores opt-level vector-width"),
            **_of(
                "bool",
                "fast-math fast-math-nnan fast-math-ninf fast-math-nsz fast-math-arcp"
                " fast-math-contract fast-math-reassoc",
            ),
        },
        _fill_cpu,
    )
    register_kind(
        "c",
        K_DL_CPU,
        ("cpu",),
        {
            **_of("str", "mcpu march mtriple"),
            **_of("list", "mattr"),
            **_of("int", "workspace-byte-alignment constants-byte-alignment num-cores"),
        },
        _fill_cpu,
    )


def _register_device_kinds() -> None:
    register_kind(
        "cuda",
        K_DL_CUDA,
        ("cuda", "gpu"),
        {
            **_of("str", "mcpu arch"),
            **_of("int", "max_shared_memory_per_block max_threads_per_block registers_per_block l2_cache_size_bytes"),
            **_of("int", "multi_processor_count"),
            **_defaults(thread_warp_size=32, max_num_threads=1024),
        },
        _fill_cuda,
    )
    register_kind(
        "nvptx",
        K_DL_CUDA,
        ("cuda", "gpu"),
        {**_of("str", "mcpu mtriple"), **_defaults(max_num_threads=1024, thread_warp_size=32)},
        _fill_nvptx,
    )
    register_kind(
        "rocm",
        K_DL_ROCM,
        ("rocm", "gpu"),
        {
            **_of("str", "mcpu mtriple"),
            **_of("list", "mattr"),
            **_defaults(
                max_num_threads=256, max_threads_per_block=256, max_shared_memory_per_block=65536, thread_warp_size=64
            ),
        },
        _fill_rocm,
    )
    register_kind(
        "opencl",
        K_DL_OPENCL,
        ("opencl", "gpu"),
        _defaults(
            max_threads_per_block=256,
            max_shared_memory_per_block=16384,
            max_num_threads=256,
            thread_warp_size=1,
            texture_spatial_limit=16384,
            texture_depth_limit=2048,
            max_function_args=128,
            image_base_address_alignment=64,
        ),
    )
    register_kind(
        "metal",
        K_DL_METAL,
        ("metal", "gpu"),
        _defaults(
            max_num_threads=256,
            max_threads_per_block=256,
            max_shared_memory_per_block=32768,
            thread_warp_size=16,
            max_function_args=31,
        ),
    )
    register_kind("vulkan", K_DL_VULKAN, ("vulkan", "gpu"), _vulkan_options())
    register_kind("webgpu", K_DL_WEBGPU, ("webgpu", "gpu"), _defaults(max_num_threads=256))
    register_kind(
        "hexagon",
        K_DL_HEXAGON,
        ("hexagon", "cpu"),
        {**_of("list", "mattr llvm-options"), **_of("str", "mcpu mtriple"), **_of("int", "num-cores vtcm-capacity")},
    )
    register_kind("ext_dev", K_DL_EXT_DEV)
    register_kind("hybrid", K_DL_CPU)
    register_kind("composite", K_DL_CPU, (), {"devices": Option("targets")})
    register_kind("machines", K_DL_CPU, (), {"machines": Option("targets")})
    register_kind("test", K_DL_CPU)


def _vulkan_options() -> dict[str, Option]:
    return {
        "mattr": Option("list"),
        **_of(
            "bool",
            "supports_float16 supports_float64 supports_int8 supports_int16 supports_int64 supports_8bit_buffer"
            " supports_16bit_buffer supports_storage_buffer_storage_class supports_push_descriptor"
            " supports_dedicated_allocation supports_integer_dot_product supports_cooperative_matrix",
        ),
        **_of(
            "int",
            "supported_subgroup_operations max_block_size_x max_block_size_y max_block_size_z max_push_constants_size"
            " max_uniform_buffer_range max_storage_buffer_range max_per_stage_descriptor_storage_buffer"
            " max_shared_memory_per_block driver_version vulkan_api_version max_spirv_version",
        ),
        **_of("str", "device_type device_name driver_name"),
        **_defaults(
            supports_float32=True,
            supports_int32=True,
            max_num_threads=256,
            max_threads_per_block=256,
            thread_warp_size=1,
        ),
    }


_register_host_kinds()
_register_device_kinds()
