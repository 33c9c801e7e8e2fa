// Just enough of HIP for a compiler to check kernels without ROCm.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
struct Index { unsigned int x, y, z; };
extern __device__ const Index threadIdx, blockIdx, blockDim, gridDim;
__device__ void __syncthreads();
__device__ unsigned long long __ballot(int);
__device__ int __clz(int);
__device__ int __clzll(long long);
template <typename T> __device__ T __shfl(T, int, int);
template <typename T> __device__ T __shfl_up(T, unsigned int, int);
template <typename T> __device__ T __shfl_down(T, unsigned int, int);
__device__ float expf(float), exp2f(float), exp10f(float), logf(float), log2f(float), log10f(float), log1pf(float);
__device__ float sqrtf(float), rsqrtf(float), sinf(float), cosf(float), tanf(float), tanhf(float), erff(float);
__device__ float floorf(float), ceilf(float), truncf(float), nearbyintf(float), fabsf(float), sinhf(float), coshf(float);
__device__ float asinf(float), acosf(float), atanf(float), asinhf(float), acoshf(float), atanhf(float);
__device__ float powf(float, float), fmodf(float, float), atan2f(float, float), copysignf(float, float), hypotf(float, float);
__device__ float fmaf(float, float, float);
__device__ bool isinf(float), isfinite(float);
