// needs: half, bf16
#include <mma.h>
// Operands of 32 bits are rounded to the precision that the tensor cores have.
template <typename F> RX_DEVICE void load_tf32(F& fragment, const float* from, unsigned int stride) {
  nvcuda::wmma::load_matrix_sync(fragment, from, stride);
#pragma unroll
  for (int i = 0; i < fragment.num_elements; ++i) fragment.x[i] = nvcuda::wmma::__float_to_tf32(fragment.x[i]); }
