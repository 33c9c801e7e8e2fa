// needs: int4, half, bf16
#include <cuda_fp4.h>
template <> struct OnlyFloat<__nv_fp4_e2m1> { static constexpr bool value = true; };
template <> struct Nibble<__nv_fp4_e2m1> {
  static RX_DEVICE __nv_fp4_e2m1 from(unsigned int bits) { __nv_fp4_e2m1 r; r.__x = (__nv_fp4_storage_t)(bits & 15u); return r; }
  static RX_DEVICE unsigned int bits(__nv_fp4_e2m1 x) { return x.__x & 15u; } };
