// More static shared memory than any assembler allows.
extern "C" __global__ void oversized(int *out, int index) {
  __shared__ char bytes[300000];
  bytes[index] = (char)index;
  __syncthreads();
  out[threadIdx.x] = bytes[index * 13 % 300000];
}
