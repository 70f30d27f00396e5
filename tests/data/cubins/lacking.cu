// What a kernel cannot bring itself, and memory that it keeps without a name of its own.
extern "C" __global__ void prints(int *out) { printf("%d", out[0]); }
extern "C" __global__ void allocates(int **out) { out[0] = (int *)malloc(16); }
