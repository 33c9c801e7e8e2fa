// needs: base
// What a float of 16 bits offers that comes in pairs: comparisons, sums of products, and casts of two at once.
#define RX_PAIRED_FLOAT(T, T2, PAIR_OF_FLOATS, FLOATS_OF_PAIR, FMA, FMA2)                                               \
  template <> struct Pair<T> { static constexpr bool exists = true; using type = T2; };                                 \
  template <> struct OnlyFloat<T> { static constexpr bool value = true; };                                              \
  RX_DEVICE T least(T a, T b) { return __hmin_nan(a, b); }                                                              \
  RX_DEVICE T greatest(T a, T b) { return __hmax_nan(a, b); }                                                           \
  RX_DEVICE T2 least(T2 a, T2 b) { return __hmin2_nan(a, b); }                                                          \
  RX_DEVICE T2 greatest(T2 a, T2 b) { return __hmax2_nan(a, b); }                                                       \
  RX_DEVICE T fused(T a, T b, T c) { return FMA(a, b, c); }                                                             \
  RX_DEVICE T2 fused(T2 a, T2 b, T2 c) { return FMA2(a, b, c); }                                                        \
  template <> struct PairCast<T, float> {                                                                               \
    static constexpr bool exists = true;                                                                                \
    static RX_DEVICE void run(T* to, const float* from) {                                                               \
      *reinterpret_cast<T2*>(to) = PAIR_OF_FLOATS(from[0], from[1]); } };                                               \
  template <> struct PairCast<float, T> {                                                                               \
    static constexpr bool exists = true;                                                                                \
    static RX_DEVICE void run(float* to, const T* from) {                                                               \
      float2 r = FLOATS_OF_PAIR(*reinterpret_cast<const T2*>(from));                                                    \
      to[0] = r.x;                                                                                                      \
      to[1] = r.y; } };
