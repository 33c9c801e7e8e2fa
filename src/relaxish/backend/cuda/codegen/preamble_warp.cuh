// needs: base
// Shuffles of values that are not one machine word.
#define RX_SHUFFLE(name, function) \
  struct Shuffle_##name { \
    static RX_DEVICE unsigned int run(unsigned int mask, unsigned int word, int lane, int width) { \
      return function(mask, word, lane, width); } };
RX_SHUFFLE(lane, __shfl_sync)
RX_SHUFFLE(up, __shfl_up_sync)
RX_SHUFFLE(down, __shfl_down_sync)
RX_SHUFFLE(xor, __shfl_xor_sync)
#undef RX_SHUFFLE
template <typename How, typename T> RX_DEVICE T shuffled(unsigned int mask, T value, int lane, int width) {
  unsigned int words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < (int)((sizeof(T) + 3) / 4); ++i) words[i] = How::run(mask, words[i], lane, width);
  memcpy(&value, words, sizeof(T));
  return value; }
