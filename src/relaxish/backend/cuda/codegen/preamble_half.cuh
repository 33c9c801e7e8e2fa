// needs: paired
#include <cuda_fp16.h>
RX_PAIRED_FLOAT(__half, __half2, __floats2half2_rn, __half22float2, __hfma, __hfma2)
