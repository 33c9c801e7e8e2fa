// needs: base
#include <cuda_bf16.h>
template <> struct Pair<__nv_bfloat16> { static constexpr bool exists = true; using type = __nv_bfloat162; };
template <> struct OnlyFloat<__nv_bfloat16> { static constexpr bool value = true; };
RX_DEVICE __nv_bfloat16 least(__nv_bfloat16 a, __nv_bfloat16 b) { return __hmin_nan(a, b); }
RX_DEVICE __nv_bfloat16 greatest(__nv_bfloat16 a, __nv_bfloat16 b) { return __hmax_nan(a, b); }
RX_DEVICE __nv_bfloat162 least(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmin2_nan(a, b); }
RX_DEVICE __nv_bfloat162 greatest(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmax2_nan(a, b); }
RX_DEVICE __nv_bfloat16 fused(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return __hfma(a, b, c); }
RX_DEVICE __nv_bfloat162 fused(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { return __hfma2(a, b, c); }
template <> struct PairCast<__nv_bfloat16, float> {
  static constexpr bool exists = true;
  static RX_DEVICE void run(__nv_bfloat16* to, const float* from) {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(from[0], from[1]); } };
template <> struct PairCast<float, __nv_bfloat16> {
  static constexpr bool exists = true;
  static RX_DEVICE void run(float* to, const __nv_bfloat16* from) {
    float2 r = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
    to[0] = r.x;
    to[1] = r.y; } };
