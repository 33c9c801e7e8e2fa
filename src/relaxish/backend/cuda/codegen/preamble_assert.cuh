// needs: base
__device__ __noinline__ void assertion_failed(const char* message) {
  printf("Assert fail: %s\n", message);
  __trap(); }
