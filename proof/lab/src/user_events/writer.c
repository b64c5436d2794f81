/*
 * Writes events of user_events (include/uapi/linux/user_events.h of Linux 6.12). It registers its events, and says `ready`. For each
 * line on its input, a thread on each CPU writes each event ROUNDS times, if it is enabled; then it says `burst`, and how many events
 * were written. The events exist until it ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

struct reg {
    uint32_t size;
    uint8_t enable_bit, enable_size;
    uint16_t flags;
    uint64_t enable_addr, name_args;
    uint32_t write_index;
} __attribute__((packed));
#define REG _IOWR('*', 0, struct reg *)
#define MULTI_FORMAT 2
/* Bytes of the common fields, from whose begin the offset in __data_loc counts. */
#define COMMON 8
#define ROUNDS 40

static const struct {
    const char *definition;
    int flags;
} EVENTS[] = {
    {"lw_numbers u32 id; s64 amount; u16 port; s16 low; u8 kind; s8 sign; char letter; unsigned char octet; unsigned short half; "
     "short small; unsigned int whole; int negative; s32 word; u64 all", 0},
    {"lw_text __rel_loc char[] text; u32 after", 0},
    {"lw_late __data_loc char[] text; __data_loc u8[] bytes", 0},
    {"lw_arrays char[20] name; unsigned char[6] mac; __rel_loc u8[] chars; __rel_loc u32[] list; __rel_loc unsigned char[] more", 0},
    {"lw_structs struct point at 12; struct pair two 8; u32 id", 0},
    {"lw_empty", 0},
    {"lw_longer u32 id", 0},
    {"lw_kept u32 id", 0},
    {"lw_multi u32 id", MULTI_FORMAT},
    {"lw_multi __rel_loc char[] text", MULTI_FORMAT},
};
enum { NUMBERS, TEXT, LATE, ARRAYS, STRUCTS, EMPTY, LONGER, KEPT, MULTI_NUMBER, MULTI_TEXT, COUNT };

static int data;
static int indexes[COUNT];
static uint32_t enabled[COUNT];
static atomic_int numbers, written;

static void die(const char *what) {
    printf("LAB-FAILED: writer: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* The bytes of an event. */
struct payload {
    uint8_t bytes[512];
    size_t size;
};

static void put(struct payload *p, const void *bytes, size_t size) {
    memcpy(p->bytes + p->size, bytes, size);
    p->size += size;
}

#define PUT(p, type, value) put(p, &(type){value}, sizeof(type))

/* A locator whose bytes begin at `at` of the payload. */
static void located(struct payload *p, int relative, size_t at, size_t size) {
    size_t offset = relative ? at - p->size - 4 : at + COMMON;
    PUT(p, uint32_t, (uint32_t)(size << 16 | offset));
}

static void fill(struct payload *p, int event, uint32_t n) {
    char text[64], name[20] = {0};
    /* The kernel refuses a text that does not end with a NUL, also one of unsigned char. */
    const uint8_t more[3] = {(uint8_t)(n | 0x80), 0xf0, 0};
    size_t len = snprintf(text, sizeof(text), "text %u of %s", n, n % 3 ? "some" : "\xc3\xa4ll") + 1;
    uint8_t bytes[16], mac[6];
    uint32_t list[4] = {n, n + 1, 0xffffffff, 7}, count = n % 5;
    for (size_t at = 0; at < sizeof(bytes); at++)
        bytes[at] = (uint8_t)(n * 7 + at);
    /* The kernel prints them as a text, in which a line feed would begin a line. */
    for (size_t at = 0; at < sizeof(mac); at++)
        mac[at] = bytes[at] | 0x40;
    p->size = 0;
    switch (event) {
    case NUMBERS:
        PUT(p, uint32_t, n);
        PUT(p, int64_t, -5000000000 - n);
        PUT(p, uint16_t, 65535 - n % 9);
        PUT(p, int16_t, (int16_t)(-1 - n % 9));
        PUT(p, uint8_t, 200 + n % 9);
        PUT(p, int8_t, (int8_t)(-100 - n % 9));
        PUT(p, char, 'a' + n % 26);
        PUT(p, unsigned char, 255 - n % 9);
        PUT(p, unsigned short, 40000 + n % 9);
        PUT(p, short, (short)(-30000 - n % 9));
        PUT(p, unsigned int, 4000000000u + n);
        PUT(p, int, -2000000000 - (int)n);
        PUT(p, int32_t, -(int32_t)n);
        PUT(p, uint64_t, UINT64_MAX - n);
        break;
    case TEXT:
    case MULTI_TEXT:
        located(p, 1, event == TEXT ? 8 : 4, len);
        if (event == TEXT)
            PUT(p, uint32_t, n);
        put(p, text, len);
        break;
    case LATE:
        located(p, 0, 8, len);
        located(p, 0, 8 + len, n % 9);
        put(p, text, len);
        put(p, bytes, n % 9);
        break;
    case ARRAYS:
        snprintf(name, sizeof(name), "name %u", n);
        put(p, name, sizeof(name));
        put(p, mac, sizeof(mac));
        located(p, 1, 38, n % 9);
        located(p, 1, 38 + n % 9, 4 * count);
        located(p, 1, 38 + n % 9 + 4 * count, 3);
        put(p, bytes, n % 9);
        for (uint32_t at = 0; at < count; at++)
            put(p, &list[at], 4);
        put(p, more, sizeof(more));
        break;
    case STRUCTS:
        put(p, bytes, 12);
        put(p, bytes + 4, 8);
        PUT(p, uint32_t, n);
        break;
    case EMPTY:
        break;
    case LONGER:
        PUT(p, uint32_t, n);
        put(p, bytes, 12);
        break;
    default:
        PUT(p, uint32_t, n);
    }
}

static void *burst(void *argument) {
    struct payload p;
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET((long)argument, &cpu);
    if (sched_setaffinity(0, sizeof(cpu), &cpu))
        die("sched_setaffinity");
    for (int round = 0; round < ROUNDS; round++)
        for (int event = 0; event < COUNT; event++) {
            if (!(__atomic_load_n(&enabled[event], __ATOMIC_RELAXED) & 1u << 31))
                continue;
            fill(&p, event, (uint32_t)atomic_fetch_add(&numbers, 1));
            struct iovec parts[2] = {{&indexes[event], 4}, {p.bytes, p.size}};
            if (writev(data, parts, p.size ? 2 : 1) < 0)
                die(EVENTS[event].definition);
            atomic_fetch_add(&written, 1);
        }
    return NULL;
}

int main(void) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    char line[64];
    pthread_t threads[64];
    data = open("/sys/kernel/tracing/user_events_data", O_RDWR);
    if (data < 0)
        die("user_events_data");
    for (int event = 0; event < COUNT; event++) {
        struct reg reg = {sizeof(reg), 31, 4, EVENTS[event].flags, (uintptr_t)&enabled[event], (uintptr_t)EVENTS[event].definition, 0};
        if (ioctl(data, REG, &reg))
            die(EVENTS[event].definition);
        indexes[event] = (int)reg.write_index;
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        written = 0;
        for (long cpu = 0; cpu < cpus && cpu < 64; cpu++)
            pthread_create(&threads[cpu], NULL, burst, (void *)cpu);
        for (long cpu = 0; cpu < cpus && cpu < 64; cpu++)
            pthread_join(threads[cpu], NULL);
        printf("burst %d\n", written);
        fflush(stdout);
    }
    return 0;
}
