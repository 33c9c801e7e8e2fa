// needs: async
// Barriers in shared memory that count arriving threads and arriving bytes; a phase ends when both are complete.
RX_DEVICE void barrier_init(unsigned long long* barrier, int threads) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(threads) : "memory");
#if __CUDA_ARCH__ >= 900
  // Bulk copies complete on it by another path to memory.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
RX_DEVICE void barrier_arrive(unsigned long long* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier)) : "memory"); }
RX_DEVICE void barrier_arrive_after_copies(unsigned long long* barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory"); }
#if __CUDA_ARCH__ >= 900
RX_DEVICE void barrier_arrive_expect(unsigned long long* barrier, int bytes) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }"
               ::"r"(shared_address(barrier)), "r"(bytes) : "memory"); }
RX_DEVICE void barrier_wait(unsigned long long* barrier, int phase = 0) {
  asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }"
               ::"r"(shared_address(barrier)), "r"(phase) : "memory"); }
RX_DEVICE void copy_bulk(void* to, const void* from, int bytes, unsigned long long* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory"); }
#else
RX_DEVICE void barrier_wait(unsigned long long* barrier, int phase = 0) {
  asm volatile("{ .reg .pred done; again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1; @!done bra again; }"
               ::"r"(shared_address(barrier)), "r"(phase) : "memory"); }
#endif
