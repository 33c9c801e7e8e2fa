// needs: base
RX_DEVICE unsigned int shared_address(const void* p) { return (unsigned int)__cvta_generic_to_shared(p); }

// Copies from global to shared memory that the thread does not wait for; without `really`, zeros are written.
template <int Bytes> RX_DEVICE void copy_async(void* to, const void* from) {
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(Bytes) : "memory"); }
template <int Bytes> RX_DEVICE void copy_async(void* to, const void* from, bool really) {
  int size = really ? Bytes : 0;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 ::"r"(shared_address(to)), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;"
                 ::"r"(shared_address(to)), "l"(from), "n"(Bytes), "r"(size) : "memory"); }
RX_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> RX_DEVICE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

template <typename T> RX_DEVICE void load_if(T* to, const void* from, bool really) {
  static_assert(sizeof(T) == 4, "32 bits");
  unsigned int word = bits_as<unsigned int>(*to);
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.b32 %0, [%1]; }"
               : "+r"(word) : "l"(from), "r"((int)really));
  *to = bits_as<T>(word); }
