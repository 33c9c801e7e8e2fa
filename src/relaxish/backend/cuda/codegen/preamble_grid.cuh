// needs: base
// A barrier of all blocks of a grid; counts arrivals from launch to launch, the block with index 0 adds what is missing to
// turn the highest bit.
__device__ unsigned int grid_arrivals = 0;
RX_DEVICE void grid_barrier() {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    unsigned int blocks = gridDim.x * gridDim.y * gridDim.z;
    bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    __threadfence();
    unsigned int before = atomicAdd(&grid_arrivals, first ? 0x80000000u - (blocks - 1u) : 1u);
    while (((before ^ *(volatile unsigned int*)&grid_arrivals) & 0x80000000u) == 0u) {}
    __threadfence();
  }
  __syncthreads(); }
