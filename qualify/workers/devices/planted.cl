// Kernels with one known error each. A sanitizer that works reports every one of them, and no other.

__kernel void planted_read(__global float *y, __global const float *a, int n) {
    int i = get_global_id(0);
    y[i] = a[i == n - 1 ? n : i];
}

__kernel void planted_write(__global float *y, __global const float *a, int n) {
    int i = get_global_id(0);
    y[i == n - 1 ? n : i] = a[i];
}

__kernel void planted_uninitialised(__global float *y, __global const float *a, int n) {
    __local float tile[64];
    int i = get_global_id(0), t = get_local_id(0);
    if (i != n - 1) tile[t] = a[i];
    y[i] = tile[t];
}

__kernel void planted_race(__global float *y, __global const float *a, int n) {
    __local float tile[64];
    int i = get_global_id(0), t = get_local_id(0);
    tile[t] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    tile[t] = a[i];
    y[i] = tile[t ^ 1];
}

__kernel void planted_divergence(__global float *y, __global const float *a, int n) {
    int i = get_global_id(0);
    if (i != n - 1) barrier(CLK_LOCAL_MEM_FENCE);
    y[i] = a[i];
}
