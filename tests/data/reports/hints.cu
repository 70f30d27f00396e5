// Register hints that the assembler drops for the entry without launch bounds; built for sm_90a.
extern "C" __global__ void unbounded(int *out) {
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  out[threadIdx.x] = 1;
}
extern "C" __global__ void __launch_bounds__(256, 1) bounded(int *out) {
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  out[threadIdx.x] = 2;
}
