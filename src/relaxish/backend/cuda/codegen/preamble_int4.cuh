// needs: base
// Elements of 4 bits are two to a byte, the lower half first; alone they are a whole byte.
template <typename T> struct Nibble;
template <> struct Nibble<signed char> {
  static RX_DEVICE signed char from(unsigned int bits) { return (signed char)((int)(bits << 28) >> 28); }
  static RX_DEVICE unsigned int bits(signed char x) { return (unsigned int)x & 15u; } };
template <> struct Nibble<unsigned char> {
  static RX_DEVICE unsigned char from(unsigned int bits) { return (unsigned char)(bits & 15u); }
  static RX_DEVICE unsigned int bits(unsigned char x) { return x & 15u; } };
template <typename T, typename I> RX_DEVICE T load_nibble(const unsigned char* p, I at) {
  return Nibble<T>::from((unsigned int)p[at >> 1] >> (((unsigned int)at & 1u) * 4)); }
template <typename T, typename I> RX_DEVICE void store_nibble(unsigned char* p, I at, T x) {
  unsigned int shift = ((unsigned int)at & 1u) * 4;
  p[at >> 1] = (unsigned char)((p[at >> 1] & ~(15u << shift)) | (Nibble<T>::bits(x) << shift)); }
// The same where another thread may write the other half of the byte.
template <typename T, typename I> RX_DEVICE void share_nibble(unsigned char* p, I at, T x) {
  size_t address = reinterpret_cast<size_t>(p + (at >> 1));
  auto word = reinterpret_cast<unsigned int*>(address & ~(size_t)3);
  unsigned int shift = (unsigned int)(address & 3) * 8 + ((unsigned int)at & 1u) * 4;
  unsigned int before = *word, seen;
  do {
    seen = before;
    before = atomicCAS(word, seen, (seen & ~(15u << shift)) | (Nibble<T>::bits(x) << shift));
  } while (before != seen); }
template <typename T, int N> RX_DEVICE Vec<T, N> unpacked(const Vec<unsigned char, N / 2>& a) { Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = Nibble<T>::from((unsigned int)a.v[i / 2] >> (i % 2 * 4));
  return r; }
template <typename T, int N> RX_DEVICE Vec<unsigned char, N / 2> packed(const Vec<T, N>& a) { Vec<unsigned char, N / 2> r;
#pragma unroll
  for (int i = 0; i < N / 2; ++i)
    r.v[i] = (unsigned char)(Nibble<T>::bits(a.v[2 * i]) | (Nibble<T>::bits(a.v[2 * i + 1]) << 4));
  return r; }
