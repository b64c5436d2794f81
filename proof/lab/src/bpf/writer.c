// Fills BPF maps and ring buffers in a guest, prints what is in them, and crashes the kernel. The programs are assembled here;
// nothing but bpf(2) is used. Every line of truth begins with "BPF ".
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CPUS = 4, PAGE = 4096, OVER_LIVE_PAGES = 16, OVERWRITE_FLAG = 1 << 19, OVERWRITE_POSITION = 4 };
// Counters of lw_count: one for each ring, and those of records that found no room: in lw_over_live, and in the others.
enum { RING, SMALL, OVER, LIVE, BYTES, OVER_LIVE, NO_ROOM, NO_ROOM_IN_OTHERS, COUNTERS };

static void must(int ok, const char *what) {
    if (ok) return;
    printf("LAB-FAILED: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    for (;;) sleep(100);
}

static long bpf(int command, union bpf_attr *attr) { return syscall(SYS_bpf, command, attr, sizeof *attr); }

static int map_of(int type, const char *name, int key, int value, int entries, int flags, int btf) {
    union bpf_attr attr = {.map_type = type, .key_size = key, .value_size = value, .max_entries = entries, .map_flags = flags};
    strncpy(attr.map_name, name, sizeof attr.map_name - 1);
    if (btf >= 0) attr.btf_fd = btf, attr.btf_key_type_id = 1, attr.btf_value_type_id = 3;
    return bpf(BPF_MAP_CREATE, &attr);
}

// The types of lw_state: struct lw_state { unsigned int cpu, state; unsigned long count; }.
static int types(void) {
    static const char strings[] = "\0unsigned int\0unsigned long\0lw_state\0cpu\0state\0count";
    const uint32_t words[] = {1, 1 << 24, 4, 32, 14, 1 << 24, 8, 64, 28, 4 << 24 | 3, 16, 37, 1, 0, 41, 1, 32, 47, 2, 64};
    const uint32_t header[] = {0x0001eb9f, 24, 0, sizeof words, sizeof words, sizeof strings};
    static char blob[sizeof header + sizeof words + sizeof strings];
    memcpy(blob, header, sizeof header);
    memcpy(blob + sizeof header, words, sizeof words);
    memcpy(blob + sizeof header + sizeof words, strings, sizeof strings);
    union bpf_attr attr = {.btf = (uint64_t)(uintptr_t)blob, .btf_size = sizeof blob};
    return bpf(BPF_BTF_LOAD, &attr);
}

// A program that is being assembled: registers 6 the record, 7 the number, 8 the CPU, 9 the loop.
static struct bpf_insn code[128];
static int len;

static void put(int op, int to, int from, int offset, int number) {
    code[len++] = (struct bpf_insn){.code = op, .dst_reg = to, .src_reg = from, .off = offset, .imm = number};
}
static void set(int to, int number) { put(0xb7, to, 0, 0, number); }
static void copy(int to, int from) { put(0xbf, to, from, 0, 0); }
static void add(int to, int number) { put(0x07, to, 0, 0, number); }
static void call(int helper) { put(0x85, 0, 0, 0, helper); }
static void map_to(int to, int fd) { put(0x18, to, 1, 0, fd), put(0, 0, 0, 0, 0); }
static void end(void) { set(0, 0), put(0x95, 0, 0, 0, 0); }

// Leaves the program if register 0 is not set, as the verifier wants it.
static void leave_if_null(void) { put(0x55, 0, 0, 2, 0), end(); }

// Register 7: the next number of a counter of this CPU.
static void count(int counts, int counter) {
    put(0x62, 10, 0, -4, counter), copy(2, 10), add(2, -4), map_to(1, counts), call(1), leave_if_null();
    put(0x79, 7, 0, 0, 0), add(7, 1), put(0x7b, 0, 7, 0, 0);
}

// The begin of a program. Registers 7 and 8: the next number of this CPU, and the CPU.
static void number(int counts, int counter) {
    len = 0;
    count(counts, counter), call(8), copy(8, 0);
}

// Counts and leaves the program if register 0 is not set.
static void count_if_null(int counts, int counter) {
    int at = len;
    put(0x55, 0, 0, 0, 0), count(counts, counter), end();
    code[at].off = len - at - 1;
}

// A record of 24 bytes: number, CPU, number * 65537. After a loop of `rounds` every eighth is discarded, the others submitted.
static void reserving(int counts, int counter, int ring, int rounds) {
    number(counts, counter), map_to(1, ring), set(2, 24), set(3, 0), call(131);
    count_if_null(counts, counter == OVER_LIVE ? NO_ROOM : NO_ROOM_IN_OTHERS), copy(6, 0);
    put(0x7b, 6, 7, 0, 0), put(0x7b, 6, 8, 8, 0), copy(1, 7), put(0x27, 1, 0, 0, 65537), put(0x7b, 6, 1, 16, 0);
    if (rounds) set(9, 0), add(9, 1), put(0xa5, 9, 0, -2, rounds);
    int discards = rounds == 0;
    if (discards) copy(1, 7), put(0x57, 1, 0, 0, 7), put(0x55, 1, 0, 5, 3), copy(1, 6), set(2, 0), call(133), end();
    copy(1, 6), set(2, 0), call(132), end();
}

// A record of 16 to 31 bytes.
static void copying(int counts, int counter, int ring) {
    number(counts, counter);
    for (int at = -48; at < -8; at += 8) put(0x7a, 10, 0, at, at * 1234567);
    put(0x7b, 10, 7, -48, 0), put(0x7b, 10, 8, -40, 0), copy(3, 7), put(0x57, 3, 0, 0, 15), add(3, 16);
    copy(2, 10), add(2, -48), map_to(1, ring), set(4, 0), call(130), end();
}

// Puts the position to which a ring was overwritten into the first element of an array.
static void asking(int ring, int positions) {
    len = 0;
    map_to(1, ring), set(2, OVERWRITE_POSITION), call(134), copy(6, 0), put(0x62, 10, 0, -4, 0), copy(2, 10), add(2, -4);
    map_to(1, positions), call(1), leave_if_null(), put(0x7b, 0, 6, 0, 0), end();
}

static int load(const char *name) {
    static char log[1 << 16];
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT, .insns = (uint64_t)(uintptr_t)code, .insn_cnt = len,
                           .license = (uint64_t)(uintptr_t) "MIT"};
    strncpy(attr.prog_name, name, sizeof attr.prog_name - 1);
    int fd = bpf(BPF_PROG_LOAD, &attr);
    if (fd < 0) {
        attr.log_buf = (uint64_t)(uintptr_t)log, attr.log_size = sizeof log, attr.log_level = 1;
        fd = bpf(BPF_PROG_LOAD, &attr);
        printf("%s\n", log);
    }
    must(fd >= 0, name);
    return fd;
}

static int run(int program) {
    union bpf_attr attr = {.test = {.prog_fd = program}};
    return bpf(BPF_PROG_TEST_RUN, &attr);
}

struct job {
    int cpu, program, count;
};

static void *work(void *arg) {
    struct job *job = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(job->cpu, &set);
    must(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
    for (int n = 0; job->count < 0 || n < job->count; n++) must(run(job->program) == 0, "BPF_PROG_TEST_RUN");
    return 0;
}

// Runs a program on all CPUs at a time; without end, if the count is negative.
static void on_all(int program, int count) {
    struct job *jobs = calloc(CPUS, sizeof *jobs);
    pthread_t threads[CPUS];
    for (int cpu = 0; cpu < CPUS; cpu++) {
        jobs[cpu] = (struct job){cpu, program, count};
        must(pthread_create(&threads[cpu], 0, work, &jobs[cpu]) == 0, "pthread_create");
    }
    for (int cpu = 0; cpu < CPUS && count >= 0; cpu++) pthread_join(threads[cpu], 0);
}

static void say_map(int fd) {
    struct bpf_map_info info = {0};
    union bpf_attr attr = {.info = {.bpf_fd = fd, .info_len = sizeof info, .info = (uint64_t)(uintptr_t)&info}};
    must(bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) == 0, "info of a map");
    printf("BPF map %s %u %u %u %u\n", info.name, info.id, info.key_size, info.value_size, info.max_entries);
}

static void say_program(int fd) {
    struct bpf_prog_info info = {0};
    uint32_t maps[8];
    info.map_ids = (uint64_t)(uintptr_t)maps, info.nr_map_ids = 8;
    union bpf_attr attr = {.info = {.bpf_fd = fd, .info_len = sizeof info, .info = (uint64_t)(uintptr_t)&info}};
    must(bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) == 0, "info of a program");
    printf("BPF program %s %u ", info.name, info.id);
    for (int n = 0; n < 8; n++) printf("%02x", info.tag[n]);
    for (unsigned n = 0; n < info.nr_map_ids; n++) printf(" %u", maps[n]);
    printf("\n");
}

struct view {
    const char *name;
    uint64_t size;
    volatile uint64_t *consumer, *producer;
    volatile uint8_t *data;
};

static struct view view_of(int fd, const char *name, uint64_t size) {
    void *consumer = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *rest = mmap(0, PAGE + 2 * size, PROT_READ, MAP_SHARED, fd, PAGE);
    must(consumer != MAP_FAILED && rest != MAP_FAILED, "mmap of a ring");
    return (struct view){name, size, consumer, rest, (uint8_t *)rest + PAGE};
}

// Prints one record as `word`, and returns the position after it.
static uint64_t say_record(struct view *view, const char *word, uint64_t at) {
    volatile uint8_t *record = view->data + (at & (view->size - 1));
    uint32_t header = *(volatile uint32_t *)record, bytes = header & 0x3fffffff;
    const char *state = header >> 31 ? "in-flight" : header >> 30 & 1 ? "discarded" : "committed";
    printf("BPF %s %s %lu %s %u ", word, view->name, at, state, bytes);
    for (uint32_t n = 0; n < bytes && !(header >> 30); n++) printf("%02x", record[8 + n]);
    printf("\n");
    return at + ((bytes + 8 + 7) & ~7ul);
}

static void consume(struct view *view, int records) {
    uint64_t at = *view->consumer;
    for (int n = 0; n < records; n++) at = say_record(view, "consumed", at);
    *view->consumer = at;
}

static void say_ring(struct view *view, uint64_t from) {
    printf("BPF ring %s %lu %lu\n", view->name, *view->consumer, *view->producer);
    for (uint64_t at = from > *view->consumer ? from : *view->consumer; at < *view->producer;) at = say_record(view, "record", at);
}

static void update(int fd, uint32_t key, const void *value) {
    union bpf_attr attr = {.map_fd = fd, .key = (uint64_t)(uintptr_t)&key, .value = (uint64_t)(uintptr_t)value};
    must(bpf(BPF_MAP_UPDATE_ELEM, &attr) == 0, "BPF_MAP_UPDATE_ELEM");
}

static void look(int fd, uint32_t key, void *value) {
    union bpf_attr attr = {.map_fd = fd, .key = (uint64_t)(uintptr_t)&key, .value = (uint64_t)(uintptr_t)value};
    must(bpf(BPF_MAP_LOOKUP_ELEM, &attr) == 0, "BPF_MAP_LOOKUP_ELEM");
}

// A ring that is overwritten until the panic. Returns its program.
static int overwriting_live(int counts, struct view *view) {
    int over = map_of(BPF_MAP_TYPE_RINGBUF, "lw_over_live", 0, 0, OVER_LIVE_PAGES * PAGE, OVERWRITE_FLAG, -1);
    must(over >= 0, "lw_over_live");
    reserving(counts, OVER_LIVE, over, 20000);
    int program = load("lw_write_olive");
    *view = view_of(over, "lw_over_live", OVER_LIVE_PAGES * PAGE);
    say_map(over), say_program(program);
    return program;
}

// Returns the program for the ring that is overwritten until the panic, or 0 for none.
static int overwriting(int counts, struct view *live) {
    int over = map_of(BPF_MAP_TYPE_RINGBUF, "lw_over", 0, 0, PAGE, OVERWRITE_FLAG, -1);
    if (over < 0 && errno == EINVAL) {
        printf("BPF without overwrite mode\n");
        return 0;
    }
    must(over >= 0, "lw_over");
    int positions = map_of(BPF_MAP_TYPE_ARRAY, "lw_positions", 4, 8, 1, 0, -1);
    must(positions >= 0, "lw_positions");
    reserving(counts, OVER, over, 0);
    int program = load("lw_write_over");
    asking(over, positions);
    int question = load("lw_ask");
    struct view view = view_of(over, "lw_over", PAGE);
    on_all(program, 10), consume(&view, 7), on_all(program, 150);
    must(run(question) == 0, "BPF_PROG_TEST_RUN");
    uint64_t position = 0;
    look(positions, 0, &position);
    printf("BPF overwritten lw_over %lu\n", position);
    say_map(over), say_map(positions), say_program(program), say_program(question), say_ring(&view, position);
    return overwriting_live(counts, live);
}

static void tables(void) {
    int btf = types();
    must(btf >= 0, "BPF_BTF_LOAD");
    int state = map_of(BPF_MAP_TYPE_ARRAY, "lw_state", 4, 16, 300, 0, btf);
    int flows = map_of(BPF_MAP_TYPE_HASH, "lw_flows", 4, 8, 200, 0, -1);
    must(state >= 0 && flows >= 0, "tables");
    for (uint32_t n = 0; n < 300; n += 1 + n / 4) {
        struct { uint32_t cpu, state; uint64_t count; } row = {n, n * 3, n * 1000003ul + 1};
        update(state, n, &row);
        printf("BPF state %u %u %u %lu\n", n, row.cpu, row.state, row.count);
    }
    for (uint32_t n = 0; n < 150; n++) {
        uint64_t value = n * 7919ul << 20 | n;
        update(flows, n * 31, &value);
    }
    for (uint32_t n = 0; n < 150; n++) {
        uint32_t key = n * 31;
        uint64_t value = 0;
        union bpf_attr attr = {.map_fd = flows, .key = (uint64_t)(uintptr_t)&key};
        if (n % 3 == 0) must(bpf(BPF_MAP_DELETE_ELEM, &attr) == 0, "BPF_MAP_DELETE_ELEM");
        else look(flows, key, &value), printf("BPF flow %u %lu\n", key, value);
    }
    say_map(state), say_map(flows);
}

// It crashes the machine, so it must be the guest that was started for it.
static void check_guest(void) {
    char line[4096] = "";
    FILE *file = fopen("/proc/cmdline", "r");
    if (file && fgets(line, sizeof line, file) && strstr(line, "lab.scenario=bpf")) return;
    fprintf(stderr, "this is not the guest of the scenario bpf\n");
    exit(2);
}

int main(void) {
    check_guest();
    setvbuf(stdout, 0, _IOLBF, 0);
    int counts = map_of(BPF_MAP_TYPE_PERCPU_ARRAY, "lw_count", 4, 8, COUNTERS, 0, -1);
    int ring = map_of(BPF_MAP_TYPE_RINGBUF, "lw_ring", 0, 0, 4 * PAGE, 0, -1);
    int small = map_of(BPF_MAP_TYPE_RINGBUF, "lw_small", 0, 0, PAGE, 0, -1);
    int bytes = map_of(BPF_MAP_TYPE_RINGBUF, "lw_bytes", 0, 0, 2 * PAGE, 0, -1);
    int live = map_of(BPF_MAP_TYPE_RINGBUF, "lw_live", 0, 0, 512 * PAGE, 0, -1);
    must(counts >= 0 && ring >= 0 && small >= 0 && bytes >= 0 && live >= 0, "maps");
    reserving(counts, RING, ring, 0);
    int to_ring = load("lw_write_ring");
    reserving(counts, SMALL, small, 0);
    int to_small = load("lw_write_small");
    copying(counts, BYTES, bytes);
    int to_bytes = load("lw_write_bytes");
    reserving(counts, LIVE, live, 20000);
    int to_live = load("lw_write_live");
    len = 0, end();
    int idle = load("lw_idle");
    union bpf_attr attr = {.raw_tracepoint = {.name = (uint64_t)(uintptr_t) "sys_enter", .prog_fd = idle}};
    must(bpf(BPF_RAW_TRACEPOINT_OPEN, &attr) >= 0, "BPF_RAW_TRACEPOINT_OPEN");

    struct view views[] = {view_of(ring, "lw_ring", 4 * PAGE), view_of(small, "lw_small", PAGE), view_of(bytes, "lw_bytes", 2 * PAGE)};
    on_all(to_ring, 60), consume(&views[0], 220), on_all(to_ring, 120);
    // The first came round; the small one is full.
    on_all(to_small, 40), consume(&views[1], 60), on_all(to_small, 40);
    on_all(to_bytes, 40);
    struct view over_live;
    int to_over_live = overwriting(counts, &over_live);
    tables();
    int maps[] = {counts, ring, small, bytes, live}, programs[] = {to_ring, to_small, to_bytes, to_live, idle};
    for (int n = 0; n < 5; n++) say_map(maps[n]), say_program(programs[n]);
    for (int n = 0; n < 3; n++) say_ring(&views[n], 0);
    printf("LAB-TRUTH-DONE\n");
    on_all(to_live, -1);
    if (to_over_live) on_all(to_over_live, -1);
    // The ring comes round several times.
    while (to_over_live && *over_live.producer < 4 * over_live.size) usleep(1000);
    usleep(400000);
    int trigger = open("/proc/sysrq-trigger", O_WRONLY);
    must(trigger >= 0 && write(trigger, "c", 1) == 1, "/proc/sysrq-trigger");
    for (;;) sleep(100);
}
