// Two variables in device memory: one that the kernel adds to, and one that no code names, as headers bring many.
__device__ unsigned runs;
__device__ const int table_size = 512;
extern "C" __global__ void noting(unsigned *out) { out[threadIdx.x] = atomicAdd(&runs, 1u); }
