extern "C" __global__ void undeclared(int *out) { out[0] = missing; }
