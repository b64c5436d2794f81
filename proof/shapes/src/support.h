/* What every generated program in C and C++ shares. The values are made by the rules of value.rs. */
#include <lastwords.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *const pieces[64] = { PIECES };

static uint64_t mix(uint64_t n)
{
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ull;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebull;
    return n ^ (n >> 31);
}

static uint64_t key_of(uint64_t seed, uint64_t writer, uint64_t number)
{
    return mix(seed ^ mix(writer << 56 ^ number));
}

static uint64_t word(uint64_t key, uint64_t field, uint64_t at)
{
    return mix(key + (field * 8192 + at + 1) * 0x9e3779b97f4a7c15ull);
}

static uint64_t scalar(uint64_t r)
{
    switch (r >> 61) {
    case 0: return 0;
    case 1: return ~0ull;
    case 2: return 1ull << (r & 63);
    case 3: return r & 0xff;
    case 4: return (1ull << (r & 63)) - 1;
    default: return mix(r);
    }
}

static uint64_t hidden(uint64_t seed, uint64_t writer, uint64_t number)
{
    return (number << 2 | writer) * FACTOR ^ seed;
}

static uint64_t length(uint64_t r, uint64_t most)
{
    switch (r >> 62) {
    case 0: return most;
    case 1: return r % ((most < 24 ? most : 24) + 1);
    default: return r % (most + 1);
    }
}

static double of_double(uint64_t r)
{
    uint64_t sign = (r & 1) << 63, bits, kind = r >> 60;
    double value;
    if (kind >= 4 && kind <= 6)
        return (double)(int32_t)r;
    if (kind >= 7 && kind <= 9)
        return (double)(int32_t)r / 1024.0;
    if (kind == 0)
        bits = sign;
    else if (kind == 1)
        bits = sign | 0x7ff0000000000000ull;
    else if (kind == 2)
        bits = sign | 0x7ff8000000000000ull;
    else if (kind == 3)
        bits = sign | (r & 0x000fffffffffffffull);
    else {
        bits = mix(r);
        if ((bits & 0x7ff0000000000000ull) == 0x7ff0000000000000ull)
            bits ^= 0x4000000000000000ull;
    }
    memcpy(&value, &bits, 8);
    return value;
}

static float of_float(uint64_t r)
{
    uint32_t sign = ((uint32_t)r & 1) << 31, bits;
    uint64_t kind = r >> 60;
    float value;
    if (kind >= 4 && kind <= 6)
        return (float)(int16_t)r;
    if (kind >= 7 && kind <= 9)
        return (float)(int16_t)r / 64.0f;
    if (kind == 0)
        bits = sign;
    else if (kind == 1)
        bits = sign | 0x7f800000u;
    else if (kind == 2)
        bits = sign | 0x7fc00000u;
    else if (kind == 3)
        bits = sign | ((uint32_t)r & 0x007fffffu);
    else {
        bits = (uint32_t)mix(r);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            bits ^= 0x40000000u;
    }
    memcpy(&value, &bits, 4);
    return value;
}

/* Elements: of a list of `count`, into the room. */
#define ELEMENTS(name, type, value) \
    static const type *name(void *room, uint64_t key, uint64_t field, uint64_t count) \
    { \
        type *to = (type *)room; \
        uint64_t i, r; \
        for (i = 0; i < count; i++) { \
            r = word(key, field, i + 1); \
            to[i] = (type)(value); \
        } \
        return to; \
    }
ELEMENTS(list_u8, uint8_t, scalar(r))
ELEMENTS(list_u16, uint16_t, scalar(r))
ELEMENTS(list_u32, uint32_t, scalar(r))
ELEMENTS(list_u64, uint64_t, scalar(r))
ELEMENTS(list_i8, int8_t, scalar(r))
ELEMENTS(list_i16, int16_t, scalar(r))
ELEMENTS(list_i32, int32_t, scalar(r))
ELEMENTS(list_i64, int64_t, scalar(r))
ELEMENTS(list_f32, float, of_float(r))
ELEMENTS(list_f64, double, of_double(r))
ELEMENTS(list_bool, bool, r & 1)

/* how: 0 any, 1 with NULs, 2 letters, 3 now and then a null pointer, 4 with bytes that are not UTF-8. */
static const char *text(char *room, uint64_t key, uint64_t field, uint64_t most, int how)
{
    uint64_t r = word(key, field, 0), at;
    size_t len = length(r, most), used = 0, size;
    int i;
    if (how == 3 && (r & 15) == 5)
        return NULL;
    for (at = 1;; at++) {
        r = word(key, field, at);
        for (i = 0; i < 8; i++, r >>= 8) {
            const char *piece = pieces[how == 2 ? r & 31 : r & 63];
            if (used == len) {
                room[len] = 0;
                return room;
            }
            if (how == 4 && (r & 63) >= 62)
                piece = (r & 63) == 63 ? "\xff" : "\xe9";
            size = strlen(piece);
            if (how == 1 && (r & 63) == 63)
                piece = "";
            if (used + size > len) {
                piece = "x";
                size = 1;
            }
            memcpy(room + used, piece, size);
            used += size;
        }
    }
}

static uint64_t class_of(uint64_t seed, uint64_t number, uint64_t classes)
{
    return number < classes ? number : mix(seed ^ mix(number)) % classes;
}

struct plan {
    uint64_t seed, classes;
    int threads;
    long every;
    void (*record)(uint64_t writer, uint64_t number, uint64_t key, char (*rooms)[8192]);
};

/* The page that outlives this process: state, go, events that returned and that began by writer, thread ids, CPUs. */
static uint64_t *page;
static char (*rooms_of[4])[8192];
static uint64_t keys[4];
static const struct plan *the_plan;
static __thread unsigned writer_now = 3;

static uint64_t current(void)
{
    return keys[writer_now];
}

static void record_next(unsigned writer)
{
    uint64_t number = page[6 + writer];
    uint64_t key = key_of(the_plan->seed, writer, number);
    keys[writer] = key;
    __atomic_store_n(&page[6 + writer], number + 1, __ATOMIC_RELEASE);
    the_plan->record(writer, number, key, rooms_of[writer]);
    __atomic_store_n(&page[2 + writer], number + 1, __ATOMIC_RELEASE);
}

static void handle(int signal)
{
    unsigned writer = writer_now;
    (void)signal;
    if ((writer & 1) == 0) {
        writer_now = writer + 1;
        record_next(writer + 1);
        writer_now = writer;
    }
}

static void *one_thread(void *number)
{
    unsigned thread = (unsigned)(uintptr_t)number;
    long tid;
    uint64_t cpu, i;
    prctl(PR_SET_NAME, thread ? "shape \xc3\xa9 1" : "shape \xc3\xa9 0");
    tid = syscall(SYS_gettid);
    page[10 + thread] = (uint64_t)tid;
    cpu = page[12 + thread];
    if (cpu != ~0ull) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    writer_now = thread * 2;
    for (i = 0; i < the_plan->classes; i++)
        record_next(thread * 2);
    if (the_plan->every > 0) {
        struct sigevent event;
        struct itimerspec value;
        timer_t timer;
        memset(&event, 0, sizeof event);
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = SIGUSR1;
        event._sigev_un._tid = (int)tid;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
            abort();
        memset(&value, 0, sizeof value);
        value.it_value.tv_nsec = value.it_interval.tv_nsec = the_plan->every * 1000;
        if (timer_settime(timer, 0, &value, NULL) != 0)
            abort();
    }
    for (;;)
        record_next(thread * 2);
    return NULL;
}

static void begin(const char *file)
{
    int fd = open(file, O_RDWR);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "shape \xc3\xa9 0");
    page = (uint64_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror(file);
        exit(1);
    }
}

/* Ends the program where the library refused something. */
static void must(int result)
{
    if (result != 0) {
        fprintf(stderr, "%s\n", lw_error());
        exit(1);
    }
}

/* Starts the session with its one channel; then records until it is killed. */
static void run(const struct plan *plan, struct lw_builder *builder, const struct lw_channel *channel)
{
    struct sigaction action;
    int i;
    must(lw_builder_channel(builder, channel));
    if (!lw_builder_start(builder))
        must(-1);
    the_plan = plan;
    for (i = 0; i < 4; i++)
        rooms_of[i] = (char (*)[8192])calloc(16, 8192);
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    __atomic_store_n(&page[0], 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&page[1], __ATOMIC_ACQUIRE))
        usleep(200);
    if (plan->threads > 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, one_thread, (void *)1);
    }
    one_thread((void *)0);
}

static const char *memory_file(const char *dir)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/../memory", dir);
    return path;
}

static uint64_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}
