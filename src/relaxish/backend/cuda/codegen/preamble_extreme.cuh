// needs: base
// Extremes of floats in memory that others update, too: the language has these of integers only. NaN stays.
template <int bytes> struct SwappedWord { using type = unsigned int; };
template <> struct SwappedWord<2> { using type = unsigned short; };
template <> struct SwappedWord<8> { using type = unsigned long long; };
template <typename T> struct Compared { using type = float; };
template <> struct Compared<double> { using type = double; };
template <bool largest, typename T> RX_DEVICE T atomic_extreme(T* place, T value) {
  using W = typename SwappedWord<sizeof(T)>::type;
  using C = typename Compared<T>::type;
  W met = *(volatile W*)place;
  C mine = (C)value;
  while (true) {
    T old = bits_as<T>(met);
    C theirs = (C)old;
    bool better = largest ? mine > theirs : mine < theirs;
    if (theirs != theirs || !(better || mine != mine)) return old;
    W before = met;
    met = atomicCAS((W*)place, before, bits_as<W>(value));
    if (met == before) return old;
  } }
