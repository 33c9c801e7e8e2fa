// Vectors with element-wise operators, memory accesses of a known alignment, division, and conversions.
#define RX_DEVICE __device__ __forceinline__

template <int Bytes> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

constexpr int vec_alignment(int bytes, int element) {
  return (bytes & (bytes - 1)) ? element : bytes < 16 ? bytes : 16;
}

// Types whose operators also work on pairs: a specialisation has `exists` true and the pair as `type`.
template <typename T> struct Pair { static constexpr bool exists = false; using type = T; };
// Types that convert to and from float only.
template <typename T> struct OnlyFloat { static constexpr bool value = false; };

template <typename T, int N>
struct alignas(vec_alignment(sizeof(T) * N, alignof(T))) Vec {
  T v[N];
  RX_DEVICE T& operator[](int i) { return v[i]; }
  RX_DEVICE const T& operator[](int i) const { return v[i]; }
  RX_DEVICE typename Pair<T>::type& pair(int i) { return reinterpret_cast<typename Pair<T>::type*>(v)[i]; }
  RX_DEVICE const typename Pair<T>::type& pair(int i) const {
    return reinterpret_cast<const typename Pair<T>::type*>(v)[i]; }
  static RX_DEVICE Vec all(T x) { Vec r;
#pragma unroll
    for (int i = 0; i < N; ++i) r.v[i] = x;
    return r; }
  static RX_DEVICE Vec ramp(T base, T stride) { Vec r;
#pragma unroll
    for (int i = 0; i < N; ++i) r.v[i] = base + (T)i * stride;
    return r; }
};

// Accesses of memory at an address that is a multiple of Align bytes, by the widest words that this allows.
template <typename V, int Align = alignof(V)> RX_DEVICE V load(const void* p) {
  using W = typename Word<(Align < 16 ? Align : 16)>::type;
  V r;
#pragma unroll
  for (int i = 0; i < (int)(sizeof(V) / sizeof(W)); ++i) reinterpret_cast<W*>(&r)[i] = reinterpret_cast<const W*>(p)[i];
  return r; }
template <typename V, int Align = alignof(V)> RX_DEVICE void store(void* p, V x) {
  using W = typename Word<(Align < 16 ? Align : 16)>::type;
#pragma unroll
  for (int i = 0; i < (int)(sizeof(V) / sizeof(W)); ++i) reinterpret_cast<W*>(p)[i] = reinterpret_cast<const W*>(&x)[i]; }

template <typename T> RX_DEVICE T least(T a, T b) { return a < b ? a : b; }
template <typename T> RX_DEVICE T greatest(T a, T b) { return a < b ? b : a; }
RX_DEVICE double least(double a, double b) { return (a < b || a != a) ? a : b; }
RX_DEVICE double greatest(double a, double b) { return (a > b || a != a) ? a : b; }
#if __CUDA_ARCH__ >= 800
RX_DEVICE float least(float a, float b) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
RX_DEVICE float greatest(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
#else
RX_DEVICE float least(float a, float b) { return (a < b || a != a) ? a : b; }
RX_DEVICE float greatest(float a, float b) { return (a > b || a != a) ? a : b; }
#endif
// One instruction; results below 2^-126 are zero.
RX_DEVICE float fast_exp2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
RX_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
RX_DEVICE double fused(double a, double b, double c) { return fma(a, b, c); }
template <typename T> RX_DEVICE T fused(T a, T b, T c) { return (T)(a * b + c); }

#define RX_ARITHMETIC(name, expression) \
  template <typename T, int N> RX_DEVICE Vec<T, N> name(const Vec<T, N>& x, const Vec<T, N>& y) { Vec<T, N> r; \
    if constexpr (Pair<T>::exists && N % 2 == 0) { \
      _Pragma("unroll") for (int i = 0; i < N / 2; ++i) { auto a = x.pair(i), b = y.pair(i); r.pair(i) = expression; } \
    } else { \
      _Pragma("unroll") for (int i = 0; i < N; ++i) { T a = x.v[i], b = y.v[i]; r.v[i] = (T)(expression); } } \
    return r; }
RX_ARITHMETIC(operator+, a + b)
RX_ARITHMETIC(operator-, a - b)
RX_ARITHMETIC(operator*, a * b)
RX_ARITHMETIC(operator/, a / b)
RX_ARITHMETIC(least, least(a, b))
RX_ARITHMETIC(greatest, greatest(a, b))
#undef RX_ARITHMETIC
#define RX_LANES(name, R, expression) \
  template <typename T, int N> RX_DEVICE Vec<R, N> name(const Vec<T, N>& x, const Vec<T, N>& y) { Vec<R, N> r; \
    _Pragma("unroll") for (int i = 0; i < N; ++i) { T a = x.v[i], b = y.v[i]; r.v[i] = (R)(expression); } \
    return r; }
RX_LANES(operator%, T, a % b)
RX_LANES(operator&, T, a & b)
RX_LANES(operator|, T, a | b)
RX_LANES(operator^, T, a ^ b)
RX_LANES(operator<<, T, a << b)
RX_LANES(operator>>, T, a >> b)
RX_LANES(operator==, bool, a == b)
RX_LANES(operator!=, bool, a != b)
RX_LANES(operator<, bool, a < b)
RX_LANES(operator<=, bool, a <= b)
RX_LANES(operator>, bool, a > b)
RX_LANES(operator>=, bool, a >= b)
RX_LANES(operator&&, bool, a && b)
RX_LANES(operator||, bool, a || b)
#undef RX_LANES

template <typename T, int N, typename F> RX_DEVICE auto vmap(const Vec<T, N>& a, F f) {
  Vec<decltype(f(a.v[0])), N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = f(a.v[i]);
  return r; }
template <typename T, typename U, int N, typename F> RX_DEVICE auto vzip(const Vec<T, N>& a, const Vec<U, N>& b, F f) {
  Vec<decltype(f(a.v[0], b.v[0])), N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = f(a.v[i], b.v[i]);
  return r; }
template <typename T, typename U, typename W, int N, typename F>
RX_DEVICE auto vzip(const Vec<T, N>& a, const Vec<U, N>& b, const Vec<W, N>& c, F f) {
  Vec<decltype(f(a.v[0], b.v[0], c.v[0])), N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = f(a.v[i], b.v[i], c.v[i]);
  return r; }
template <typename T, int N> RX_DEVICE Vec<T, N> operator~(const Vec<T, N>& a) { return vmap(a, [](T x) { return (T)~x; }); }
template <int N> RX_DEVICE Vec<bool, N> operator!(const Vec<bool, N>& a) { return vmap(a, [](bool x) { return !x; }); }

template <typename T, int N> RX_DEVICE Vec<T, N> fused(const Vec<T, N>& a, const Vec<T, N>& b, const Vec<T, N>& c) {
  Vec<T, N> r;
  if constexpr (Pair<T>::exists && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) r.pair(i) = fused(a.pair(i), b.pair(i), c.pair(i));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) r.v[i] = fused(a.v[i], b.v[i], c.v[i]);
  }
  return r; }

template <typename T, int N>
RX_DEVICE Vec<T, N> vselect(const Vec<bool, N>& c, const Vec<T, N>& a, const Vec<T, N>& b) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = c.v[i] ? a.v[i] : b.v[i];
  return r; }

template <typename T, typename I, int N> RX_DEVICE Vec<T, N> gather(const T* p, const Vec<I, N>& at) { Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = p[at.v[i]];
  return r; }
template <typename T, typename I, int N> RX_DEVICE void scatter(T* p, const Vec<I, N>& at, const Vec<T, N>& x) {
#pragma unroll
  for (int i = 0; i < N; ++i) p[at.v[i]] = x.v[i]; }
// Lanes whose mask is false are not touched; loaded they are zero.
template <typename T, typename I, int N>
RX_DEVICE Vec<T, N> gather(const T* p, const Vec<I, N>& at, const Vec<bool, N>& mask) { Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = mask.v[i] ? p[at.v[i]] : T(0);
  return r; }
template <typename T, typename I, int N>
RX_DEVICE void scatter(T* p, const Vec<I, N>& at, const Vec<T, N>& x, const Vec<bool, N>& mask) {
#pragma unroll
  for (int i = 0; i < N; ++i) if (mask.v[i]) p[at.v[i]] = x.v[i]; }

// Memory that other threads change: every access really happens, as one.
template <int Bytes> struct VolatileWord { using type = typename Word<Bytes>::type; };
template <> struct VolatileWord<8> { using type = unsigned long long; };
template <typename T> RX_DEVICE T load_volatile(const T* p) {
  auto word = *reinterpret_cast<const volatile typename VolatileWord<sizeof(T)>::type*>(p);
  T r;
  memcpy(&r, &word, sizeof(T));
  return r; }
template <typename T> RX_DEVICE void store_volatile(T* p, T x) {
  typename VolatileWord<sizeof(T)>::type word;
  memcpy(&word, &x, sizeof(T));
  *reinterpret_cast<volatile typename VolatileWord<sizeof(T)>::type*>(p) = word; }

template <typename T, int N> RX_DEVICE Vec<T, N / 2> lower_half(const Vec<T, N>& a) { return load<Vec<T, N / 2>>(a.v); }
template <typename T, int N> RX_DEVICE Vec<T, N / 2> upper_half(const Vec<T, N>& a) { return load<Vec<T, N / 2>>(a.v + N / 2); }
template <typename T, int N> RX_DEVICE Vec<T, 2 * N> joined(const Vec<T, N>& a, const Vec<T, N>& b) { Vec<T, 2 * N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) { r.v[i] = a.v[i]; r.v[N + i] = b.v[i]; }
  return r; }

template <typename U, typename T> RX_DEVICE U cast_to(T x) {
  if constexpr (OnlyFloat<U>::value || OnlyFloat<T>::value) return (U)(float)x;
  else return (U)x; }
template <> RX_DEVICE float cast_to<float, float>(float x) { return x; }
// Conversions of two elements at once: a specialisation has `exists` true and `run(to, from)`.
template <typename U, typename T> struct PairCast { static constexpr bool exists = false; };
template <typename U, typename T, int N> RX_DEVICE Vec<U, N> vcast(const Vec<T, N>& a) { Vec<U, N> r;
  if constexpr (PairCast<U, T>::exists && N % 2 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) PairCast<U, T>::run(r.v + i, a.v + i);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) r.v[i] = cast_to<U>(a.v[i]);
  }
  return r; }

template <typename To, typename From> RX_DEVICE To bits_as(const From& x) {
  static_assert(sizeof(To) == sizeof(From), "reinterpreting keeps the size");
  To r;
  memcpy(&r, &x, sizeof(To));
  return r; }

template <typename T> RX_DEVICE T floordiv(T a, T b) { T q = a / b; return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q; }
template <typename T> RX_DEVICE T floormod(T a, T b) { T r = a % b; return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r; }
template <typename T, int N> RX_DEVICE Vec<T, N> floordiv(const Vec<T, N>& a, const Vec<T, N>& b) {
  return vzip(a, b, [](T x, T y) { return floordiv(x, y); }); }
template <typename T, int N> RX_DEVICE Vec<T, N> floormod(const Vec<T, N>& a, const Vec<T, N>& b) {
  return vzip(a, b, [](T x, T y) { return floormod(x, y); }); }
