// The device code that every generated file begins with: vectors, floor division, asynchronous copies.

template <int Bytes> struct VecAlign { static constexpr int value = (Bytes & (Bytes - 1)) ? 1 : (Bytes < 16 ? Bytes : 16); };

template <typename T, int N>
struct alignas(VecAlign<sizeof(T) * N>::value > alignof(T) ? VecAlign<sizeof(T) * N>::value : alignof(T)) Vec {
  T v[N];
  __device__ __forceinline__ T& operator[](int i) { return v[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
  static __device__ __forceinline__ Vec all(T x) { Vec r;
#pragma unroll
    for (int i = 0; i < N; ++i) r.v[i] = x;
    return r; }
  static __device__ __forceinline__ Vec ramp(T base, T stride) { Vec r;
#pragma unroll
    for (int i = 0; i < N; ++i) r.v[i] = base + (T)i * stride;
    return r; }
};

template <typename U, typename T, int N>
__device__ __forceinline__ Vec<U, N> vcast(const Vec<T, N>& a) { Vec<U, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = (U)a.v[i];
  return r; }

template <typename T, int N, typename F>
__device__ __forceinline__ auto vmap(const Vec<T, N>& a, F f) {
  Vec<decltype(f(a.v[0])), N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = f(a.v[i]);
  return r; }

template <typename T, typename U, int N, typename F>
__device__ __forceinline__ auto vzip(const Vec<T, N>& a, const Vec<U, N>& b, F f) {
  Vec<decltype(f(a.v[0], b.v[0])), N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = f(a.v[i], b.v[i]);
  return r; }

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> vselect(const Vec<bool, N>& c, const Vec<T, N>& a, const Vec<T, N>& b) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = c.v[i] ? a.v[i] : b.v[i];
  return r; }

template <typename T, typename I, int N>
__device__ __forceinline__ Vec<T, N> gather(const T* p, const Vec<I, N>& at) { Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = p[at.v[i]];
  return r; }

template <typename T, typename I, int N>
__device__ __forceinline__ void scatter(T* p, const Vec<I, N>& at, const Vec<T, N>& x) {
#pragma unroll
  for (int i = 0; i < N; ++i) p[at.v[i]] = x.v[i]; }

template <typename T> __device__ __forceinline__ T floordiv(T a, T b) { T q = a / b; return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q; }
template <typename T> __device__ __forceinline__ T floormod(T a, T b) { T r = a % b; return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r; }
template <typename T> __device__ __forceinline__ T least(T a, T b) { return a < b ? a : b; }
template <typename T> __device__ __forceinline__ T greatest(T a, T b) { return a < b ? b : a; }
template <typename To, typename From>
__device__ __forceinline__ To bits_as(const From& x) {
  static_assert(sizeof(To) == sizeof(From), "reinterpreting keeps the size");
  To r;
  memcpy(&r, &x, sizeof(To));
  return r;
}

template <int Bytes> __device__ __forceinline__ void copy_async(void* to, const void* from, bool really = true) {
  unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  int size = really ? Bytes : 0;
  if (Bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(Bytes), "r"(size) : "memory"); }
