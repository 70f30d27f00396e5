// A row of elements, copied to where they lie apart by one work-item. What is between them is never written, and a
// sanitizer knows that.

#define TILE 4096

__kernel void lay_apart(
    __global uchar *to, __global const uchar *row, __global const ulong *starts, ulong runs, ulong run_bytes) {
    __local uchar tile[TILE];
    for (ulong run = 0; run < runs; run++)
        for (ulong at = 0; at < run_bytes; at += TILE) {
            size_t count = min((ulong)TILE, run_bytes - at);
            event_t in = async_work_group_copy(tile, row + run * run_bytes + at, count, 0);
            wait_group_events(1, &in);
            event_t out = async_work_group_copy(to + starts[run] + at, tile, count, 0);
            wait_group_events(1, &out);
        }
}
