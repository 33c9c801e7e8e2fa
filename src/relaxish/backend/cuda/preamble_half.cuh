// needs: base
#include <cuda_fp16.h>
template <> struct Pair<__half> { static constexpr bool exists = true; using type = __half2; };
template <> struct OnlyFloat<__half> { static constexpr bool value = true; };
RX_DEVICE __half least(__half a, __half b) { return __hmin_nan(a, b); }
RX_DEVICE __half greatest(__half a, __half b) { return __hmax_nan(a, b); }
RX_DEVICE __half2 least(__half2 a, __half2 b) { return __hmin2_nan(a, b); }
RX_DEVICE __half2 greatest(__half2 a, __half2 b) { return __hmax2_nan(a, b); }
RX_DEVICE __half fused(__half a, __half b, __half c) { return __hfma(a, b, c); }
RX_DEVICE __half2 fused(__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); }
template <> struct PairCast<__half, float> {
  static constexpr bool exists = true;
  static RX_DEVICE void run(__half* to, const float* from) {
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(from[0], from[1]); } };
template <> struct PairCast<float, __half> {
  static constexpr bool exists = true;
  static RX_DEVICE void run(float* to, const __half* from) {
    float2 r = __half22float2(*reinterpret_cast<const __half2*>(from));
    to[0] = r.x;
    to[1] = r.y; } };
