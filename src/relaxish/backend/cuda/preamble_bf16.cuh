// needs: paired
#include <cuda_bf16.h>
RX_PAIRED_FLOAT(__nv_bfloat16, __nv_bfloat162, __floats2bfloat162_rn, __bfloat1622float2)
