// FNV-1a 64 over a list of buffers in its exact parallel form (R9.5), equal bit for bit to the serial definition.
//
// The low byte of the state evolves alone, h' = (h ^ b) * 0xB3 mod 256, and triangularly: bit k of the next state is
// bit k of (this state ^ input), xor carries from lower bits. So eight rounds, one a bit, of an exclusive xor scan
// over the threads give every thread its incoming low byte. A thread then hashes its own bytes serially from that
// byte alone; the rest of the incoming state is linear (times PRIME^length) and is folded in afterwards.
//
// A tile is 64 KiB: 512 threads of 128 bytes. Tiles of one buffer hand the low byte on in a chain; tiles of different
// buffers do not wait for each other, so a list of buffers hides the hand-over. Blocks take tiles by ticket, number
// first, buffer second: a tile only ever waits for one that a running block holds.
//
// Inside a thread, bit j of plane word (w, k) is bit k of byte 4 j + w: 32 sub-chunks of 4 bytes advance together.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define FNV_BASIS 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull
#define FNV_THREADS 512u
#define FNV_WARPS (FNV_THREADS / 32u)
#define FNV_UNIT 4  // Bytes of a sub-chunk.
#define FNV_THREAD_BYTES 128u
#define FNV_TILE_BYTES (FNV_THREADS * FNV_THREAD_BYTES)
#define FNV_ROW_WORDS 33u  // 32 words of a thread and one of padding: rows fall into different banks.

struct fnv_buffer {
    u64 address;
    u64 size_bytes;
    u64 first_tile;  // Index of the buffer's first tile in the arrays `low` and `partial`.
};

__device__ __forceinline__ u64 fnv_power(u64 exponent) {
    u64 result = 1, base = FNV_PRIME;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

// One stage of a 32 x 32 bit transpose: exchange the upper `shift` columns of row a with the lower ones of row b.
__device__ __forceinline__ void fnv_exchange(u32 &a, u32 &b, u32 shift, u32 mask) {
    const u32 t = ((a >> shift) ^ b) & mask;
    a ^= t << shift;
    b ^= t;
}

// Transpose rows[0..31] in place: afterwards bit j of row i is what bit i of row j was.
__device__ __forceinline__ void fnv_transpose(u32 *rows) {
#pragma unroll
    for (int i = 0; i < 16; i++) fnv_exchange(rows[i], rows[i + 16], 16, 0x0000ffffu);
#pragma unroll
    for (int g = 0; g < 32; g += 16)
#pragma unroll
        for (int i = g; i < g + 8; i++) fnv_exchange(rows[i], rows[i + 8], 8, 0x00ff00ffu);
#pragma unroll
    for (int g = 0; g < 32; g += 8)
#pragma unroll
        for (int i = g; i < g + 4; i++) fnv_exchange(rows[i], rows[i + 4], 4, 0x0f0f0f0fu);
#pragma unroll
    for (int g = 0; g < 32; g += 4)
#pragma unroll
        for (int i = g; i < g + 2; i++) fnv_exchange(rows[i], rows[i + 2], 2, 0x33333333u);
#pragma unroll
    for (int i = 0; i < 32; i += 2) fnv_exchange(rows[i], rows[i + 1], 1, 0x55555555u);
}

__device__ __forceinline__ u32 fnv_majority(u32 a, u32 b, u32 c) { return (a & b) | (c & (a | b)); }

// What the columns below k of x * 0xB3 carry into column k, a number c0 + 2 c1 + 4 c2 for each of 32 sub-chunks.
struct fnv_carry {
    u32 c0, c1, c2;
};

// Bits j - 1, j - 4, j - 5 and j - 7 of x, those that column j adds to bit j: 0xB3 = 1 + 2 + 16 + 32 + 128.
#define FNV_BELOW(x, j, d) ((j) >= (d) ? (x)[(j) - (d)] : 0u)

// Bit k of x * 0xB3 without the term x_k itself; x holds bits 0..k-1.
__device__ __forceinline__ u32 fnv_column(const u32 *x, int k, const fnv_carry &carry) {
    return FNV_BELOW(x, k, 1) ^ FNV_BELOW(x, k, 4) ^ FNV_BELOW(x, k, 5) ^ FNV_BELOW(x, k, 7) ^ carry.c0;
}

// Column j is complete (j < 7, so bit j - 7 is not there): its carry joins those into column j + 1.
__device__ __forceinline__ void fnv_next(const u32 *x, int j, fnv_carry &carry) {
    const u32 own = x[j], p = FNV_BELOW(x, j, 1), q = FNV_BELOW(x, j, 4), r = FNV_BELOW(x, j, 5);
    const u32 t = own ^ p ^ q, u = fnv_majority(own, p, q), v = fnv_majority(t, r, carry.c0);
    const u32 n1 = fnv_majority(u, v, carry.c1);
    carry.c0 = u ^ v ^ carry.c1;
    carry.c1 = n1 ^ carry.c2;
    carry.c2 = n1 & carry.c2;
}

// xor of all lower bits into each bit, itself included.
__device__ __forceinline__ u32 fnv_scan(u32 word) {
    word ^= word << 1;
    word ^= word << 2;
    word ^= word << 4;
    word ^= word << 8;
    word ^= word << 16;
    return word;
}

// Copy a tile into padded rows. The first word may reach back, the last one ahead, by up to three bytes; the arena has
// zones there.
__device__ __forceinline__ void fnv_load(u32 *rows, const u8 *source, u32 bytes) {
    const u32 shift = 8u * (u32)((u64)source & 3);
    const u32 *words = (const u32 *)((u64)source & ~3ull);
    const u32 count = (bytes + 3) / 4;
    for (u32 i = threadIdx.x; i < count; i += FNV_THREADS) {
        const u32 low = words[i];
        const u32 word = shift ? __funnelshift_r(low, words[i + 1], shift) : low;
        rows[(i / 32) * FNV_ROW_WORDS + i % 32] = word;
    }
}

// The incoming low byte of this thread, given the tile's: eight rounds of a block-wide exclusive xor scan. `outgoing`
// becomes the low byte after the tile, so that the next tile need not wait for this one's serial hashes.
__device__ __forceinline__ u32 fnv_incoming(u32 (&m)[32], u32 valid_bytes, u32 tile_low, u32 (*parity)[FNV_WARPS],
                                            u32 &outgoing) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    fnv_carry carries[FNV_UNIT] = {};
    u32 incoming = 0;
    outgoing = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        // m[8 w + j] holds x_j = state ^ input for j < k and the input for j >= k.
        u32 total = 0;
        u32 before[FNV_UNIT];
#pragma unroll
        for (int w = 0; w < FNV_UNIT; w++) {
            // Byte 4 j + w of the thread is there if it is below valid_bytes.
            const u32 units = valid_bytes > (u32)w ? (valid_bytes - w + FNV_UNIT - 1) / FNV_UNIT : 0;
            const u32 there = units >= 32 ? 0xffffffffu : (1u << units) - 1u;
            before[w] = total;
            total ^= (m[8 * w + k] ^ fnv_column(m + 8 * w, k, carries[w])) & there;
        }
        const u32 inclusive = fnv_scan(total);
        const u32 ballot = __ballot_sync(0xffffffffu, inclusive >> 31);
        const u32 below = __popc(ballot & ((1u << lane) - 1u)) & 1u;
        if (lane == 0) parity[k & 1][warp] = __popc(ballot) & 1u;
        __syncthreads();
        const u32 warps = __ballot_sync(0xffffffffu, lane < FNV_WARPS && parity[k & 1][lane & (FNV_WARPS - 1u)]);
        const u32 low = (tile_low >> k) & 1u;
        const u32 carry = low ^ (__popc(warps & ((1u << warp) - 1u)) & 1u);
        outgoing |= (low ^ (__popc(warps) & 1u)) << k;
        const u32 start = carry ^ below;
        incoming |= start << k;
        const u32 spread = (inclusive ^ total) ^ (0u - start);
#pragma unroll
        for (int w = 0; w < FNV_UNIT; w++) {
            m[8 * w + k] ^= spread ^ before[w];
            if (k < 7) fnv_next(m + 8 * w, k, carries[w]);
        }
    }
    return incoming;
}

// h, the serial hash of `bytes` bytes from state `h`.
__device__ __forceinline__ u64 fnv_serial(const u32 *row, u32 bytes, u64 h) {
    const u32 words = bytes / 4;
    for (u32 i = 0; i < words; i++) {
        const u32 word = row[i];
#pragma unroll
        for (int b = 0; b < 4; b++) h = (h ^ ((word >> (8 * b)) & 0xffu)) * FNV_PRIME;
    }
    for (u32 i = 4 * words; i < bytes; i++) h = (h ^ ((row[i / 4] >> (8 * (i & 3))) & 0xffu)) * FNV_PRIME;
    return h;
}

// `low[t]` becomes 256 + the low byte after tile t; `partial[t]` the tile's own term. Both start as zeros.
extern "C" __global__ void __launch_bounds__(512, 2)
qualify_fnv_tiles(const fnv_buffer *buffers, const u32 *tile_buffer, const u32 *tile_number, u32 tiles, u32 *ticket,
                  volatile u32 *low, u64 *partial) {
    extern __shared__ u32 rows[];
    __shared__ u32 parity[2][FNV_WARPS];
    __shared__ u64 sums[FNV_WARPS];
    __shared__ u32 shared_ticket, shared_low;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 row_power = fnv_power(FNV_THREAD_BYTES);
    const u64 rest_power = fnv_power((FNV_THREADS - 1u - threadIdx.x) * FNV_THREAD_BYTES);
    while (true) {
        if (threadIdx.x == 0) shared_ticket = atomicAdd(ticket, 1u);
        __syncthreads();
        const u32 turn = shared_ticket;
        if (turn >= tiles) return;
        const fnv_buffer buffer = buffers[tile_buffer[turn]];
        const u32 number = tile_number[turn];
        const u64 offset = (u64)number * FNV_TILE_BYTES;
        const u64 left = buffer.size_bytes - offset;
        const u32 bytes = left < FNV_TILE_BYTES ? (u32)left : FNV_TILE_BYTES;
        fnv_load(rows, (const u8 *)(buffer.address + offset), bytes);
        __syncthreads();

        const u32 mine = threadIdx.x * FNV_THREAD_BYTES;
        const u32 valid = bytes > mine ? min(bytes - mine, FNV_THREAD_BYTES) : 0u;
        const u32 *row = rows + threadIdx.x * FNV_ROW_WORDS;
        u32 m[32];
#pragma unroll
        for (int j = 0; j < 32; j++) m[j] = row[j];
        fnv_transpose(m);  // Row 8 w + k: bit k of byte w of each unit.

        const u64 tile = buffer.first_tile + number;
        if (threadIdx.x == 0) {
            u32 seen = FNV_BASIS & 0xffu;
            if (number > 0)
                while (!((seen = low[tile - 1]) & 256u)) __nanosleep(20);
            shared_low = seen & 0xffu;
        }
        __syncthreads();
        u32 outgoing;
        const u32 incoming = fnv_incoming(m, valid, shared_low, parity, outgoing);
        if (threadIdx.x == 0) low[tile] = 256u | outgoing;

        const u64 h = fnv_serial(row, valid, incoming);
        const bool whole = bytes == FNV_TILE_BYTES;
        const u32 rest = bytes > mine + valid ? bytes - mine - valid : 0u;
        u64 term = (h - (u64)incoming * (whole ? row_power : fnv_power(valid))) * (whole ? rest_power : fnv_power(rest));
#pragma unroll
        for (int d = 16; d; d >>= 1) term += __shfl_down_sync(0xffffffffu, term, d);
        if (lane == 0) sums[warp] = term;
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 sum = 0;
            for (u32 v = 0; v < FNV_WARPS; v++) sum += sums[v];
            partial[tile] = sum;
        }
    }
}

// One block a buffer: fold the tiles' terms, h = h * PRIME^bytes + term, in order.
extern "C" __global__ void __launch_bounds__(512)
qualify_fnv_fold(const fnv_buffer *buffers, const u64 *partial, u64 *digests) {
    __shared__ u64 sums[FNV_WARPS];
    const fnv_buffer buffer = buffers[blockIdx.x];
    const u64 tiles = (buffer.size_bytes + FNV_TILE_BYTES - 1) / FNV_TILE_BYTES;
    u64 sum = threadIdx.x == 0 ? FNV_BASIS * fnv_power(buffer.size_bytes) : 0;
    for (u64 t = threadIdx.x; t < tiles; t += FNV_THREADS) {
        const u64 end = (t + 1) * FNV_TILE_BYTES;
        sum += partial[buffer.first_tile + t] * fnv_power(end < buffer.size_bytes ? buffer.size_bytes - end : 0);
    }
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        u64 whole = 0;
        for (u32 v = 0; v < FNV_WARPS; v++) whole += sums[v];
        digests[blockIdx.x] = whole;
    }
}
