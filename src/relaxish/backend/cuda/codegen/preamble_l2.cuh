// needs: base
// Loads and asynchronous copies that tell the second-level cache what to keep (compute capability 8.0).
template <typename V, int Align = alignof(V)> RX_DEVICE V load_kept(const void* p, unsigned long long policy) {
  V r;
  if constexpr (sizeof(V) == 16 && Align % 16 == 0) {
    uint4& w = reinterpret_cast<uint4&>(r);
    asm volatile("ld.global.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(p), "l"(policy) : "memory");
  } else if constexpr (sizeof(V) == 8 && Align % 8 == 0) {
    uint2& w = reinterpret_cast<uint2&>(r);
    asm volatile("ld.global.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;" : "=r"(w.x), "=r"(w.y) : "l"(p), "l"(policy) : "memory");
  } else if constexpr (sizeof(V) == 4 && Align % 4 == 0) {
    asm volatile("ld.global.L2::cache_hint.b32 %0, [%1], %2;" : "=r"(reinterpret_cast<unsigned int&>(r)) : "l"(p), "l"(policy) : "memory");
  } else if constexpr (sizeof(V) == 2 && Align % 2 == 0) {
    asm volatile("ld.global.L2::cache_hint.b16 %0, [%1], %2;" : "=h"(reinterpret_cast<unsigned short&>(r)) : "l"(p), "l"(policy) : "memory");
  } else {
    r = load<V, Align>(p);
  }
  return r; }
template <int Bytes> RX_DEVICE void copy_async_kept(void* to, const void* from, bool really, unsigned long long policy) {
  int size = really ? Bytes : 0;
  unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;"
                 ::"r"(at), "l"(from), "r"(size), "l"(policy) : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3, %4;"
                 ::"r"(at), "l"(from), "n"(Bytes), "r"(size), "l"(policy) : "memory"); }
