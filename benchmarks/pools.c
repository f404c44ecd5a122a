/* The four pool models (models.py) as a C program: the practical limit of one core.

   One event a visit, no objects, no allocation in the loop, int64 picoseconds. A pool of servers is a
   count of busy ones and a queue; a link is the recursion departure = max(arrival, free) + service.
   Built with -DWHEEL=0: a plain 4-ary heap; 1: a bitmapped timing wheel of 4,096 slots of 65.5 ns,
   with the heap for what lies beyond it. The model is -DMODEL='A'..'D' and the macros of models.py.
   Arguments: outstanding, requests of the warm-up, requests measured, seed.
   Prints: CPU seconds, mean latency in ps, p99 in ps, simulated requests per second. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t u64;
typedef uint32_t u32;
#define NONE 0xffffffffu
#define NEVER (~(u64)0)

enum { CPU_IN, CPU_OUT, READ_DRIVE, READ_LINK, READ_CROSS, WRITE_CROSS, WRITE_LINK, WRITE_DRIVE };

typedef struct {
    u64 submit;      /* a request's */
    u32 parent;      /* NONE: it is a request */
    u32 left;        /* children that it waits for */
    u32 next;        /* behind it in a station's queue */
    uint16_t drive;  /* a request's is the first of two */
    uint16_t other;
    uint8_t stage, socket, phase, write;
} Token;

typedef struct {
    int idle;
    u32 head, tail;
} Pool;

static Token *token;
static u32 *spare, n_spare;
static Pool cpu[SOCKETS], drive[DRIVES];
static u64 link_free[DRIVES], cross_free[2];
static u64 seed = 88172645463325252u;

static inline u64 draw(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static inline u32 below(u32 n) { return (u32)(((draw() >> 32) * n) >> 32); }

/* Lognormal times: the middles of 8,192 equally likely cells. */

#define CELLS 8192
static u32 read_ps[CELLS], write_ps[CELLS];

static void fill(u32 *table, double mean) {
    for (int i = 0; i < CELLS; i++) {
        double p = (i + 0.5) / CELLS, low = -9, high = 9;
        for (int k = 0; k < 50; k++) {
            double z = (low + high) / 2;
            if (0.5 * erfc(-z * M_SQRT1_2) < p) low = z; else high = z;
        }
        table[i] = (u32)(mean * exp(SIGMA * low - SIGMA * SIGMA / 2));
    }
}

/* Events: one a token at most. */

typedef struct {
    u64 t;
    u64 e;
} Event;

static Event *heap;
static u64 n_heap;

static inline void heap_push(u64 t, u64 e) {
    u64 i = n_heap++;
    while (i) {
        u64 up = (i - 1) >> 2;
        if (heap[up].t <= t) break;
        heap[i] = heap[up];
        i = up;
    }
    heap[i].t = t, heap[i].e = e;
}

static inline Event heap_pop(void) {
    Event top = heap[0], last = heap[--n_heap];
    u64 i = 0;
    for (;;) {
        u64 child = 4 * i + 1, end = child + 4 < n_heap ? child + 4 : n_heap;
        if (child >= n_heap) break;
        u64 best = child;
        if (end - child == 4) { /* selects, which cannot be mispredicted */
            u64 low = child + (heap[child + 1].t < heap[child].t);
            u64 high = child + 2 + (heap[child + 3].t < heap[child + 2].t);
            best = heap[high].t < heap[low].t ? high : low;
        } else
            for (u64 c = child + 1; c < end; c++)
                if (heap[c].t < heap[best].t) best = c;
        if (heap[best].t >= last.t) break;
        heap[i] = heap[best];
        i = best;
    }
    heap[i] = last;
    return top;
}

#if WHEEL
#define SLOTS 4096
#define SLOT_BITS 16
static u32 slot[SLOTS], *after;
static u64 *due, bits[SLOTS / 64], words, cursor; /* cursor: absolute number of the current slot */

static inline void push(u64 t, u32 e) {
    u64 number = t >> SLOT_BITS;
    if (number - cursor >= SLOTS) {
        heap_push(t, e);
        return;
    }
    u32 at = number & (SLOTS - 1), *p = &slot[at];
    while (*p != NONE && due[*p] < t) p = &after[*p];
    after[e] = *p, due[e] = t, *p = e;
    bits[at >> 6] |= 1ull << (at & 63);
    words |= 1ull << (at >> 6);
}

/* The first occupied slot from the cursor on, around the wheel; it must not be empty. */
static inline u32 first_slot(void) {
    u32 at = cursor & (SLOTS - 1), w = at >> 6;
    u64 here = bits[w] >> (at & 63);
    if (here) return at + __builtin_ctzll(here);
    u64 later = w == 63 ? 0 : words >> (w + 1);
    w = later ? w + 1 + __builtin_ctzll(later) : (u32)__builtin_ctzll(words);
    return 64 * w + __builtin_ctzll(bits[w]);
}

static inline Event pop(void) {
    if (words) {
        u32 at = first_slot(), e = slot[at];
        if (!n_heap || due[e] <= heap[0].t) {
            slot[at] = after[e];
            if (slot[at] == NONE && !(bits[at >> 6] &= ~(1ull << (at & 63))))
                words &= ~(1ull << (at >> 6));
            cursor = due[e] >> SLOT_BITS;
            return (Event){due[e], e};
        }
    }
    Event top = heap_pop();
    cursor = top.t >> SLOT_BITS;
    return top;
}
#else
#define push heap_push
#define pop heap_pop
#endif

/* Stations. */

static inline u64 service(u32 e) {
    uint8_t stage = token[e].stage;
    if (stage <= CPU_OUT) return CPU_PS;
    return (stage == READ_DRIVE ? read_ps : write_ps)[draw() >> 51];
}

static inline void pool_arrive(Pool *pool, u32 e, u64 t) {
    if (pool->idle) {
        pool->idle--;
        push(t + service(e), e);
        return;
    }
    token[e].next = NONE;
    if (pool->head == NONE) pool->head = e; else token[pool->tail].next = e;
    pool->tail = e;
}

static inline void pool_depart(Pool *pool, u64 t) {
    u32 e = pool->head;
    if (e == NONE) {
        pool->idle++;
        return;
    }
    pool->head = token[e].next;
    push(t + service(e), e);
}

static inline void line_arrive(u64 *is_free, u64 ps, u32 e, u64 t) {
    u64 start = *is_free > t ? *is_free : t;
    *is_free = start + ps;
    push(start + ps, e);
}

static inline int crosses(const Token *k) { return SOCKETS > 1 && k->socket != k->drive / (DRIVES / SOCKETS); }

/* Requests. */

static u64 done, target, sum_ps;
static u32 histogram[64 << 7];

static inline void note(u64 ps) {
    int shift = 56 - __builtin_clzll(ps | 128);
    histogram[(shift << 7) + (ps >> shift)]++;
    sum_ps += ps;
}

static inline void cpu_visit(u32 k, int stage, u64 t) {
    token[k].stage = stage;
    pool_arrive(&cpu[token[k].socket], k, t);
}

static inline void begin(u32 k, int write, u64 t) {
    Token *x = &token[k];
    if (!write) {
        x->stage = READ_DRIVE;
        pool_arrive(&drive[x->drive], k, t);
    } else if (crosses(x)) {
        x->stage = WRITE_CROSS;
        line_arrive(&cross_free[x->socket], CROSS_PS, k, t);
    } else {
        x->stage = WRITE_LINK;
        line_arrive(&link_free[x->drive], LINK_PS, k, t);
    }
}

static inline void child(u32 parent, u32 at, int write, u64 t) {
    u32 k = spare[--n_spare];
    token[k].parent = parent, token[k].drive = at, token[k].socket = token[parent].socket;
    begin(k, write, t);
}

/* What a request does when its CPU visit or its last child has ended. */
static inline void go_on(u32 k, u64 t) {
    Token *x = &token[k];
    u32 phase = x->phase++;
#if MODEL == 'A'
    if (phase == 0) {
        x->drive = below(DRIVES);
        begin(k, 0, t);
        return;
    }
#elif MODEL == 'B'
    if (phase == 0) {
        x->drive = below(DRIVES), x->other = below(DRIVES - 1);
        x->other += x->other >= x->drive;
    }
    if (phase < 2) {
        x->left = 2;
        child(k, x->drive, phase, t), child(k, x->other, phase, t);
        return;
    }
#elif MODEL == 'C'
    if (phase == 0) {
        int write = below(100) >= 70;
        x->drive = below(DRIVES);
        if (!write) {
            begin(k, 0, t);
        } else {
            x->left = 2;
            child(k, x->drive, 1, t), child(k, x->drive ^ 1, 1, t);
        }
        return;
    }
#else
    if (phase == 0) {
        x->left = CHILDREN;
        for (int i = 0; i < CHILDREN; i++) child(k, i % DRIVES, 1, t);
        return;
    }
#endif
    cpu_visit(k, CPU_OUT, t);
}

static inline void end(u32 k, u64 t) {
    u32 parent = token[k].parent;
    if (parent == NONE) {
        go_on(k, t);
        return;
    }
    spare[n_spare++] = k;
    if (--token[parent].left == 0) go_on(parent, t);
}

static u64 run(void) {
    u64 t = 0;
    while (done < target) {
        Event event = pop();
        u32 k = event.e;
        Token *x = &token[k];
        t = event.t;
        switch (x->stage) {
        case CPU_IN:
            pool_depart(&cpu[x->socket], t);
            go_on(k, t);
            break;
        case CPU_OUT:
            pool_depart(&cpu[x->socket], t);
            note(t - x->submit);
            done++;
            x->submit = t, x->phase = 0;
            cpu_visit(k, CPU_IN, t);
            break;
        case READ_DRIVE:
            pool_depart(&drive[x->drive], t);
            x->stage = READ_LINK;
            line_arrive(&link_free[x->drive], LINK_PS, k, t);
            break;
        case READ_LINK:
            if (crosses(x)) {
                x->stage = READ_CROSS;
                line_arrive(&cross_free[1 - x->socket], CROSS_PS, k, t);
                break;
            }
            end(k, t);
            break;
        case WRITE_CROSS:
            x->stage = WRITE_LINK;
            line_arrive(&link_free[x->drive], LINK_PS, k, t);
            break;
        case WRITE_LINK:
            x->stage = WRITE_DRIVE;
            pool_arrive(&drive[x->drive], k, t);
            break;
        case WRITE_DRIVE:
            pool_depart(&drive[x->drive], t);
            end(k, t);
            break;
        case READ_CROSS:
            end(k, t);
        }
    }
    return t;
}

static void *zeros(u64 n, u64 size) {
    void *p = calloc(n, size);
    if (!p) exit(1);
    return p;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    u32 outstanding = atoi(argv[1]), n = outstanding * (1 + CHILDREN);
    u64 warm = strtoull(argv[2], 0, 10), requests = strtoull(argv[3], 0, 10);
    seed ^= strtoull(argv[4], 0, 10) * 0x9E3779B97F4A7C15u;
    fill(read_ps, READ_PS), fill(write_ps, WRITE_PS);
    token = zeros(n, sizeof *token), spare = zeros(n, sizeof *spare), heap = zeros(n + 1, sizeof *heap);
#if WHEEL
    after = zeros(n, sizeof *after), due = zeros(n, sizeof *due);
    memset(slot, 0xff, sizeof slot);
#endif
    for (int s = 0; s < SOCKETS; s++) cpu[s] = (Pool){CORES, NONE, NONE};
    for (int s = 0; s < DRIVES; s++) drive[s] = (Pool){POOL, NONE, NONE};
    for (u32 k = n; k-- > outstanding;) spare[n_spare++] = k;
    for (u32 k = 0; k < outstanding; k++) {
        token[k].parent = NONE, token[k].socket = k % SOCKETS;
        cpu_visit(k, CPU_IN, 0);
    }
    target = warm;
    u64 began = run();
    memset(histogram, 0, sizeof histogram), sum_ps = 0, target = done + requests;
    clock_t start = clock();
    u64 ended = run();
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    u64 seen = 0, p99 = 0;
    for (u32 i = 0; i < sizeof histogram / sizeof *histogram; i++)
        if ((seen += histogram[i]) * 100 >= requests * 99) {
            u32 shift = i < 256 ? 0 : (i >> 7) - 1;
            p99 = (u64)(i - (shift << 7)) << shift;
            break;
        }
    printf("%.6f %.1f %llu %.1f\n", seconds, (double)sum_ps / requests, (unsigned long long)p99,
           requests / ((ended - began) * 1e-12));
    return 0;
}
