// needs: half, bf16
#include <cuda_fp8.h>
template <> struct OnlyFloat<__nv_fp8_e4m3> { static constexpr bool value = true; };
template <> struct OnlyFloat<__nv_fp8_e5m2> { static constexpr bool value = true; };
// What has 8 bits converts by pairs, to and from float and half; numbers too large become the largest.
#define RX_FP8_PAIRS(T, Pairs, kind) \
  template <> struct PairCast<T, float> { \
    static constexpr bool exists = true; \
    static RX_DEVICE void run(T* to, const float* from) { \
      *reinterpret_cast<__nv_fp8x2_storage_t*>(to) = \
          __nv_cvt_float2_to_fp8x2(make_float2(from[0], from[1]), __NV_SATFINITE, kind); } }; \
  template <> struct PairCast<T, __half> { \
    static constexpr bool exists = true; \
    static RX_DEVICE void run(T* to, const __half* from) { \
      *reinterpret_cast<__nv_fp8x2_storage_t*>(to) = \
          __nv_cvt_halfraw2_to_fp8x2(*reinterpret_cast<const __half2*>(from), __NV_SATFINITE, kind); } }; \
  template <> struct PairCast<__half, T> { \
    static constexpr bool exists = true; \
    static RX_DEVICE void run(__half* to, const T* from) { \
      *reinterpret_cast<__half2*>(to) = \
          __half2(__nv_cvt_fp8x2_to_halfraw2(*reinterpret_cast<const __nv_fp8x2_storage_t*>(from), kind)); } }; \
  template <> struct PairCast<float, T> { \
    static constexpr bool exists = true; \
    static RX_DEVICE void run(float* to, const T* from) { \
      float2 r = __half22float2( \
          __half2(__nv_cvt_fp8x2_to_halfraw2(*reinterpret_cast<const __nv_fp8x2_storage_t*>(from), kind))); \
      to[0] = r.x; \
      to[1] = r.y; } };
RX_FP8_PAIRS(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __NV_E4M3)
RX_FP8_PAIRS(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __NV_E5M2)
#undef RX_FP8_PAIRS
