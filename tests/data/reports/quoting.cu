// A source that prints a report of its own: a better one for its entry, and an error that never was.
#pragma message("\nptxas info    : Compiling entry function 'quoting' for 'sm_90'\nptxas info    : Function properties for quoting\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 4 registers, used 0 barriers")
extern "C" __global__ void quoting(int *out) {
  int unused; // error: this is only a comment
  out[threadIdx.x] = out[threadIdx.x + 1] * 3;
}
