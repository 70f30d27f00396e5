// The harness kernels of OpenCL devices. qualify/patterns.py defines values, poison and zones, qualify/fnv.py the
// digest; what is here must equal them bit for bit, and the contract test of devices compares them.

// SplitMix64's output number `word` for a seed.
ulong mix(ulong seed, ulong word)
{
    ulong z = seed + (word + 1) * 0x9E3779B97F4A7C15ul;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ul;
    z = (z ^ z >> 27) * 0x94D049BB133111EBul;
    return z ^ z >> 31;
}

// Eight bytes of poison: the top exponent bits are made to differ from those below them.
ulong poison_word(ulong seed, ulong word, ulong top, ulong below, ulong flip)
{
    ulong z = mix(seed, word);
    return ((z & ~top) | (~z & below) << 1) ^ flip;
}

// Store the first bytes of a word; a start need not be aligned.
void put(__global uchar *to, ulong value, ulong bytes)
{
    if (bytes >= 8) {
        vstore8(as_uchar8(value), 0, to);
        return;
    }
    if (bytes >= 4) {
        vstore4(as_uchar4((uint)value), 0, to);
        to += 4;
        value >>= 32;
        bytes -= 4;
    }
    for (ulong i = 0; i < bytes; i++)
        to[i] = (uchar)(value >> 8 * i);
}

// The first bytes of a word.
ulong get(__global const uchar *from, ulong bytes)
{
    if (bytes >= 8)
        return as_ulong(vload8(0, from));
    ulong value = 0;
    for (ulong i = 0; i < bytes; i++)
        value |= (ulong)from[i] << 8 * i;
    return value;
}

// `flip` is 0 or all ones.
__kernel void zone_write(__global uchar *arena, ulong size, ulong seed, ulong flip)
{
    ulong word = get_global_id(0);
    if (8 * word < size)
        put(arena + 8 * word, mix(seed, word) ^ flip, size - 8 * word);
}

// One work-item a range of bytes outside all buffers: how many differ from the pattern, and the first.
__kernel void zone_check(__global const uchar *arena, __global const ulong *ranges, ulong count, ulong seed,
                         ulong flip, __global ulong *found)
{
    ulong item = get_global_id(0);
    if (item >= count)
        return;
    ulong wrong = 0, first = 0, at = ranges[2 * item], to = ranges[2 * item + 1];
    while (at < to) {
        ulong value = (mix(seed, at / 8) ^ flip) >> 8 * (at % 8);
        for (ulong end = min(to, (at / 8 + 1) * 8); at < end; at++, value >>= 8)
            if (arena[at] != (uchar)value && wrong++ == 0)
                first = at;
    }
    found[2 * item] = wrong;
    found[2 * item + 1] = first;
}

// One work-item a run of words; stores of whole words where the buffer lies so are four times as fast.
__kernel void poison(__global uchar *to, ulong size, ulong run, ulong seed, ulong top, ulong below, ulong flip)
{
    ulong word = get_global_id(0) * run, end = min(word + run, (size + 7) / 8), whole = min(end, size / 8);
    if ((ulong)to % 8 == 0)
        for (; word < whole; word++)
            ((__global ulong *)to)[word] = poison_word(seed, word, top, below, flip);
    for (; word < end; word++)
        put(to + 8 * word, poison_word(seed, word, top, below, flip), size - 8 * word);
}

// One work-item a run of words: how many elements still equal the poison, and where `both` is not 0 its complement in
// `beside`; and the first.
__kernel void unwritten(__global const uchar *from, __global const uchar *beside, ulong both, ulong size, ulong bytes,
                        ulong run, ulong seed, ulong top, ulong below, ulong flip, __global ulong *found)
{
    ulong item = get_global_id(0), equal = 0, first = 0;
    ulong mask = bytes == 8 ? ~0ul : (1ul << 8 * bytes) - 1;
    for (ulong word = item * run; word < (item + 1) * run && 8 * word < size; word++) {
        ulong poison = poison_word(seed, word, top, below, flip);
        ulong wrong = get(from + 8 * word, size - 8 * word) ^ poison;
        if (both)
            wrong |= get(beside + 8 * word, size - 8 * word) ^ ~poison;
        for (ulong at = 0; at < min(8ul, size - 8 * word); at += bytes)
            if ((wrong >> 8 * at & mask) == 0 && equal++ == 0)
                first = (8 * word + at) / bytes;
    }
    found[2 * item] = equal;
    found[2 * item + 1] = first;
}

// Philox4x32-10 of four elements in a row, a lane each: counter (index low, index high, block, 0), key the seed.
typedef struct { uint4 a, b, c, d; } words;

words philox(ulong first, uint block, ulong seed)
{
    ulong4 index = first + (ulong4)(0, 1, 2, 3);
    words w = {convert_uint4(index), convert_uint4(index >> 32), (uint4)(block), (uint4)(0)};
    uint k = (uint)seed, l = (uint)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        ulong4 p = convert_ulong4(w.a) * 0xD2511F53ul, q = convert_ulong4(w.c) * 0xCD9E8D57ul;
        w.a = convert_uint4(q >> 32) ^ w.b ^ k;
        w.b = convert_uint4(q);
        w.c = convert_uint4(p >> 32) ^ w.d ^ l;
        w.d = convert_uint4(p);
        k += 0x9E3779B9u;
        l += 0xBB67AE85u;
    }
    return w;
}

uint4 halves(uint4 word)
{
    return (word & 0xFFFFu) + (word >> 16);
}

// The nearest float to fixed / 2^32 as bits, ties to even.
ulong to_float(long fixed, uint mantissa, int bias, ulong sign, ulong greatest, ulong overflow)
{
    if (fixed == 0)
        return 0;
    ulong magnitude = fixed < 0 ? -(ulong)fixed : (ulong)fixed;
    int exponent = max(31 - (int)clz(magnitude), 1 - bias);
    int drop = exponent - (int)mantissa + 32;
    ulong units = drop > 0 ? (magnitude + ((1ul << (drop - 1)) - 1) + (magnitude >> drop & 1)) >> drop : magnitude << -drop;
    ulong bits = ((ulong)(exponent + bias - 1) << mantissa) + units;
    return (fixed < 0 ? sign : 0) | (bits > greatest ? overflow : bits);
}

// The nearest integer to fixed / 2^32, ties to even, held to the type's range; `sign` is 0 for unsigned ones.
ulong to_integer(long fixed, ulong sign, ulong greatest)
{
    long nearest = (fixed + 0x7FFFFFFFl + (fixed >> 32 & 1)) >> 32;
    long least = sign > 1ul << 62 ? -(1l << 62) : -(long)sign;
    return (ulong)clamp(nearest, least, (long)min(greatest, 1ul << 62));
}

// One work-item four elements.
__kernel void values(__global uchar *to, ulong elements, uint bytes, uint normal, long base, long scale, ulong seed,
                     uint is_float, uint mantissa, int bias, ulong sign, ulong greatest, ulong overflow,
                     __global const ulong *specials, uint special_count)
{
    ulong first = 4 * get_global_id(0);
    if (first >= elements)
        return;
    words one = philox(first, 0, seed), two = {0, 0, 0, 0};
    if (normal || special_count)
        two = philox(first, 1, seed);
    long fixed[4];
    uint choose[4], which[4];
    if (normal) {
        uint4 sum = halves(one.a) + halves(one.b) + halves(one.c) + halves(one.d) + halves(two.a) + halves(two.b);
        long4 centred = convert_long4(sum) - 393210;
        vstore4(base + (scale >> 16) * centred + ((scale & 0xFFFF) * centred >> 16), 0, fixed);
    } else {
        ulong4 part = ((ulong)scale & 0xFFFFFFFFul) * convert_ulong4(one.a) >> 32;
        vstore4(base + (scale >> 32) * convert_long4(one.a) + convert_long4(part), 0, fixed);
    }
    vstore4(two.c, 0, choose);
    vstore4(two.d, 0, which);
    for (ulong i = 0; i < min(4ul, elements - first); i++) {
        ulong bits = is_float ? to_float(fixed[i], mantissa, bias, sign, greatest, overflow)
                              : to_integer(fixed[i], sign, greatest);
        if (special_count && choose[i] % 8 == 0)
            bits = specials[(ulong)which[i] * special_count >> 32];
        put(to + (first + i) * bytes, bits, bytes);
    }
}

// FNV-1a 64, serial, each byte waiting for the one before: one work-item three buffers, whose waits overlap.
#define CHAINS 3
__kernel void digest(__global const uchar *arena, __global const ulong *places, ulong count, ulong prime,
                     __global ulong *found)
{
    ulong item = CHAINS * get_global_id(0), last = count - 1;
    if (item >= count)
        return;
    ulong one = item, two = min(item + 1, last), three = min(item + 2, last);
    __global const uchar *a = arena + places[2 * one], *b = arena + places[2 * two], *c = arena + places[2 * three];
    ulong sizes[CHAINS] = {places[2 * one + 1], places[2 * two + 1], places[2 * three + 1]};
    ulong least = min(min(sizes[0], sizes[1]), sizes[2]), h = 0xCBF29CE484222325ul, k = h, l = h;
    for (ulong i = 0; i < least; i++) {
        h = (h ^ a[i]) * prime;
        k = (k ^ b[i]) * prime;
        l = (l ^ c[i]) * prime;
    }
    for (ulong i = least; i < sizes[0]; i++)
        h = (h ^ a[i]) * prime;
    for (ulong i = least; i < sizes[1]; i++)
        k = (k ^ b[i]) * prime;
    for (ulong i = least; i < sizes[2]; i++)
        l = (l ^ c[i]) * prime;
    found[one] = h;
    found[two] = k;
    found[three] = l;
}

// Overwrite the local memory of every compute unit. A unit takes many groups in a row, and one idle unit could take
// them all, so a unit that is done waits for the others, a moment only: they come in a later launch with the same table
// where the machine lets them run late. table[0] counts units, the rest names their memories.
__kernel void scrub(__local volatile ulong *memory, ulong words, ulong seed, uint units, __global volatile uint *table)
{
    uint name = (uint)((ulong)memory >> 7), place = 1, there = 0;
    for (; place <= 2 * units; place++) {
        there = atomic_cmpxchg(&table[place], 0u, name);
        if (there == name)
            return;
        if (there == 0)
            break;
    }
    for (ulong word = 0; word < words; word++)
        memory[word] = mix(seed, word);
    atomic_inc(&table[0]);
    for (uint tries = 0; tries < 1u << 13 && atomic_add(&table[0], 0u) < units; tries++)
        ;
}

// Read memory and keep a sum of it, so that the reads happen.
__kernel void touch(__global const uchar *from, ulong size, ulong run, __global ulong *found)
{
    ulong item = get_global_id(0), sum = 0;
    for (ulong at = item * run; at < min(size, (item + 1) * run); at += 32)
        sum += from[at];
    found[item] = sum;
}

// Copy memory, one work-item a run of bytes. The compiler makes the machine's own vectors of this loop; told to use
// vectors of 64 bytes, LLVM 14 crashes where a unit's are shorter.
__kernel void copy(__global uchar *to, __global const uchar *from, ulong size, ulong run)
{
    for (ulong at = get_global_id(0) * run, end = min(size, at + run); at < end; at++)
        to[at] = from[at];
}

// Where run number `item` of a strided buffer starts; it lies along three axes, of which the outermost has any count.
ulong run_start(ulong item, ulong first, ulong middle, ulong inner, ulong s0, ulong s1, ulong s2)
{
    return first + item / (middle * inner) * s0 + item / inner % middle * s1 + item % inner * s2;
}

// Elements that lie apart into a row, one work-item a run.
__kernel void gather(__global const uchar *arena, __global uchar *packed, ulong first, ulong run, ulong middle,
                     ulong inner, ulong s0, ulong s1, ulong s2)
{
    ulong item = get_global_id(0), from = run_start(item, first, middle, inner, s0, s1, s2);
    for (ulong at = 0; at < run; at++)
        packed[item * run + at] = arena[from + at];
}

// And back.
__kernel void scatter(__global uchar *arena, __global const uchar *packed, ulong first, ulong run, ulong middle,
                      ulong inner, ulong s0, ulong s1, ulong s2)
{
    ulong item = get_global_id(0), to = run_start(item, first, middle, inner, s0, s1, s2);
    for (ulong at = 0; at < run; at++)
        arena[to + at] = packed[item * run + at];
}
