// needs: paired
#include <cuda_bf16.h>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Devices before Ampere have the type to store it only.
RX_DEVICE __nv_bfloat16 bf16_fma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __float2bfloat16_rn(fmaf(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c))); }
RX_DEVICE __nv_bfloat162 bf16_fma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __halves2bfloat162(bf16_fma(a.x, b.x, c.x), bf16_fma(a.y, b.y, c.y)); }
#else
#define bf16_fma __hfma
#define bf16_fma2 __hfma2
#endif
RX_PAIRED_FLOAT(__nv_bfloat16, __nv_bfloat162, __floats2bfloat162_rn, __bfloat1622float2, bf16_fma, bf16_fma2)
