// needs: base
template <typename T> RX_DEVICE T integer_power(T a, T b) { T r = 1;
  for (; b > 0; b >>= 1, a *= a) if (b & 1) r *= a;
  return r; }
// Fixed-point product with q fractional bits, moved s bits to the right and rounded.
RX_DEVICE int multiply_shift(int x, int y, int q, int s) {
  return (int)(((long long)x * y + (1LL << (q + s - 1))) >> (q + s)); }
RX_DEVICE int multiply_shift_per_axis(int x, int y, int left, int right, int q, bool is_left, bool is_right) {
  long long moved = is_left ? (long long)x << left : (long long)x;
  int shift = is_right ? right + q : q;
  return (int)((moved * y + (1LL << (shift - 1))) >> shift); }
// The next number towards another one, of types with 16 bits.
template <typename T> RX_DEVICE T next_after(T from, T to) {
  float a = (float)from, b = (float)to;
  if (a != a || b != b || a == b) return a == b ? to : (a != a ? from : to);
  unsigned short bits = bits_as<unsigned short>(from);
  if (a == 0.0f) bits = (unsigned short)(b < 0.0f ? 0x8001 : 0x0001);
  else bits = (unsigned short)(((a < b) == (a > 0.0f)) ? bits + 1 : bits - 1);
  return bits_as<T>(bits); }
