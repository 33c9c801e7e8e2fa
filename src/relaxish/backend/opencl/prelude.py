"""Text before the kernels: halves on devices that may lack them, shuffles, the sampler of textures."""

from __future__ import annotations

__all__ = ["HALF", "SAMPLER", "SHUFFLE"]

_WIDTHS = (2, 3, 4, 8, 16)


def _half() -> str:
    """``real16`` computes: half where the device has it, float elsewhere; ``mem16`` is what lies in memory."""
    native = [
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
        "typedef half real16;",
        "typedef half mem16;",
        "#define load_half(space, p, i) (p)[i]",
        "#define store_half(space, x, p, i) (p)[i] = (x)",
        "#define read_imager16 read_imageh",
        "#define write_imager16 write_imageh",
    ]
    emulated = [
        "typedef float real16;",
        "typedef ushort mem16;",
        "#define load_half(space, p, i) vload_half(i, (const space half*)(p))",
        "#define store_half(space, x, p, i) vstore_half_rte(x, i, (space half*)(p))",
        "#define read_imager16 read_imagef",
        "#define write_imager16 write_imagef",
    ]
    for n in _WIDTHS:
        native += [
            f"typedef half{n} real16_{n};",
            f"#define convert_real16_{n} convert_half{n}",
            f"#define load_half{n}(space, p) vload{n}(0, p)",
            f"#define store_half{n}(space, x, p) vstore{n}(x, 0, p)",
        ]
        emulated += [
            f"typedef float{n} real16_{n};",
            f"#define convert_real16_{n} convert_float{n}",
            f"#define load_half{n}(space, p) vload_half{n}(0, (const space half*)(p))",
            f"#define store_half{n}(space, x, p) vstore_half{n}_rte(x, 0, (space half*)(p))",
        ]
    return "\n".join(["#ifdef cl_khr_fp16", *native, "#else", *emulated, "#endif", ""])


HALF = _half()

# A lane outside of the group of ``width`` threads reads its own value.
SHUFFLE = """\
#if defined(cl_khr_subgroup_shuffle)
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define lane_value(x, i) sub_group_shuffle(x, i)
#else
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define lane_value(x, i) intel_sub_group_shuffle(x, i)
#endif
#define lane_number ((int)get_sub_group_local_id())
#define lane_start(width) (lane_number / (width) * (width))
#define warp_shuffle(x, i, width) lane_value(x, lane_start(width) + (i) % (width))
#define warp_shuffle_up(x, delta, width) \\
  lane_value(x, lane_number - (lane_number - (delta) < lane_start(width) ? 0 : (delta)))
#define warp_shuffle_down(x, delta, width) \\
  lane_value(x, lane_number + (lane_number + (delta) >= lane_start(width) + (width) ? 0 : (delta)))
"""

SAMPLER = "__constant sampler_t image_sampler = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"
