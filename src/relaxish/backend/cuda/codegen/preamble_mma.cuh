// needs: async
RX_DEVICE int lane_index() { int lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane)); return lane; }

#define RX_LDMATRIX_1(name, how) \
  RX_DEVICE void name(void* to, const void* from) { auto r = (unsigned int*)to; \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" how ".shared.b16 {%0}, [%1];" \
                 : "=r"(r[0]) : "r"(shared_address(from)) : "memory"); }
#define RX_LDMATRIX_2(name, how) \
  RX_DEVICE void name(void* to, const void* from) { auto r = (unsigned int*)to; \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" how ".shared.b16 {%0, %1}, [%2];" \
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(from)) : "memory"); }
#define RX_LDMATRIX_4(name, how) \
  RX_DEVICE void name(void* to, const void* from) { auto r = (unsigned int*)to; \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(from)) : "memory"); }
RX_LDMATRIX_1(ldmatrix_x1, "")
RX_LDMATRIX_1(ldmatrix_x1_trans, ".trans")
RX_LDMATRIX_2(ldmatrix_x2, "")
RX_LDMATRIX_2(ldmatrix_x2_trans, ".trans")
RX_LDMATRIX_4(ldmatrix_x4, "")
RX_LDMATRIX_4(ldmatrix_x4_trans, ".trans")

// The fragment of a 32 x 16 operand of bytes, columns in registers, from rows that are `pitch` elements apart.
template <typename T> RX_DEVICE void load_bytes_transposed(T* to, const T* from, int pitch) {
  int lane = lane_index();
#pragma unroll
  for (int i = 0; i < 16; ++i) to[i] = from[(i % 8 / 4 * 16 + lane % 4 * 4 + i % 4) * pitch + lane / 4 + i / 8 * 8]; }

template <int N, typename T> RX_DEVICE void fill_zero(T* registers) {
#pragma unroll
  for (int i = 0; i < N; ++i) registers[i] = T(0); }

// The eight elements that a lane has of a 16 x 16 result of mma.sync.
template <bool Pairs = false, typename T, typename U> RX_DEVICE void store_tile_16x16(T* to, const U* from, int stride) {
  int row = lane_index() / 4, column = lane_index() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    T* at = to + (row + i % 4 / 2 * 8) * stride + column + i / 4 * 8;
    Vec<T, 2> pair = {{cast_to<T>(from[i]), cast_to<T>(from[i + 1])}};
    if constexpr (Pairs) store(at, pair);
    else { at[0] = pair[0]; at[1] = pair[1]; }
  } }
