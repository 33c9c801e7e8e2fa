// needs: async
// sm_90a: barriers in shared memory, bulk tensor copies, products of warpgroups.
#ifndef __cuda_cuda_h__
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
#endif
RX_DEVICE void mbarrier_init(const void* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory"); }
RX_DEVICE void mbarrier_arrive(const void* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"); }
// The barrier at the same place in another block of the cluster. It says that memory of this block has been read, and
// publishes nothing: a release for the cluster would be a fence for the whole GPU before every arrival.
RX_DEVICE void mbarrier_arrive(const void* barrier, int rank) {
  asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [remote]; }"
               ::"r"(shared_address(barrier)), "r"(rank) : "memory"); }
RX_DEVICE void mbarrier_arrive_expect_tx(const void* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
               ::"r"(shared_address(barrier)), "r"(bytes) : "memory"); }
RX_DEVICE bool mbarrier_try_wait(const void* barrier, int parity) {
  int done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
  return done; }
RX_DEVICE void mbarrier_wait(const void* barrier, int parity) {
  asm volatile("{ .reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again; }"
               ::"r"(shared_address(barrier)), "r"(parity) : "memory"); }
RX_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
RX_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
RX_DEVICE void prefetch_map(const CUtensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
RX_DEVICE void bulk_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> RX_DEVICE void bulk_store_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
template <int N> RX_DEVICE void bulk_store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
RX_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RX_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> RX_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N> RX_DEVICE void registers_increase() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> RX_DEVICE void registers_decrease() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
RX_DEVICE void named_sync(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
RX_DEVICE void named_arrive(int barrier, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
RX_DEVICE bool elect_lane() {
  int mine;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.s32 %0, 1, 0, p; }" : "=r"(mine));
  return mine; }
// The same in all lanes of a warp, and known to be so.
RX_DEVICE int warp_group_index() { return __shfl_sync(0xffffffff, (int)threadIdx.x / 128, 0); }
RX_DEVICE int cluster_rank() { int rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank; }
// 16 bytes from the same place in the shared memory of a block of the cluster.
RX_DEVICE void cluster_read(void* to, const void* from, int rank) {
  float* d = (float*)to;
  asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %4, %5;\n"
               "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote]; }"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(shared_address(from)), "r"(rank) : "memory"); }
// The lanes of a warp come together first, as .aligned wants them. Without it there are code for lanes that are apart and
// a question at run time whether there is a cluster.
RX_DEVICE void cluster_arrive() { __syncwarp(); asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
RX_DEVICE void cluster_arrive_relaxed() {
  __syncwarp(); asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
RX_DEVICE void cluster_wait() { __syncwarp(); asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Bits 0-13: address / 16; 16-29: leading byte offset / 16; 32-45: stride byte offset / 16; 49-51: offset of a swizzle
// pattern that does not begin at a multiple of its size (ours do: 0); 62-63: no swizzle 0, 128 bytes 1, 64 2, 32 3.
RX_DEVICE unsigned long long matrix_descriptor(const void* at, unsigned leading, unsigned stride, unsigned mode) {
  return (unsigned long long)((shared_address(at) & 0x3FFFF) >> 4) | ((unsigned long long)(leading >> 4) << 16) |
         ((unsigned long long)(stride >> 4) << 32) | ((unsigned long long)mode << 62); }
