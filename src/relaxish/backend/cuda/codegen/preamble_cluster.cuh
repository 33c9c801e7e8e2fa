// needs: base
// The position of a block within its cluster.
#define RX_CLUSTER(axis) \
  RX_DEVICE int cluster_block_##axis() { int at; asm("mov.u32 %0, %%cluster_ctaid." #axis ";" : "=r"(at)); return at; }
RX_CLUSTER(x)
RX_CLUSTER(y)
RX_CLUSTER(z)
#undef RX_CLUSTER
