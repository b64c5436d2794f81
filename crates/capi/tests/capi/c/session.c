/*
 * What a session and its channels can be asked to be, and what can be done with one that records. The first argument says
 * what. Prints the session's folder, and what the test is to know besides.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <lastwords.h>

/* Ends the program where what must hold does not. */
#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #holds, lw_error()); \
            exit(1); \
        } \
    } while (0)
/* The call fails, and says why. */
#define REFUSED(call, why) \
    do { \
        CHECK(!(call)); \
        CHECK(strstr(lw_error(), why)); \
    } while (0)

static struct lw_session *start(struct lw_builder *builder)
{
    struct lw_session *session;

    CHECK(session = lw_builder_start(builder));
    printf("%s\n", lw_session_folder(session));
    return session;
}

static struct lw_builder *with_channel(const char *name, struct lw_channel *channel)
{
    struct lw_builder *builder = lw_builder_new(name);

    CHECK(builder && lw_builder_channel(builder, channel) == 0);
    return builder;
}

/* The channel `main` without contexts. */
static struct lw_channel plain(void)
{
    struct lw_channel channel;

    memset(&channel, 0, sizeof(channel));
    channel.name = "main";
    channel.contexts = LW_CONTEXT_NONE;
    return channel;
}

static void steps(uint64_t from, uint64_t to)
{
    uint64_t n;

    for (n = from; n < to; n++)
        LW_EVENT("s", "step", lw_u64(n));
}

/* Contexts of the application's own. */

enum phase { IDLE, BUSY = 7 };
static const struct lw_label phases[] = { { IDLE, "idle" }, { BUSY, "busy" } };
static uint64_t request;
static const char *customer = "nobody";
static enum phase phase;
static int marker;

static void read_request(void *to, void *data)
{
    CHECK(data == &marker);
    *(uint64_t *)to = request;
}

static void read_customer(void *to, void *data)
{
    const char *text = customer;
    char *at = (char *)to;
    size_t i;

    (void)data;
    for (i = 0; i < 12 && text[i]; i++)
        at[i] = text[i];
}

static void read_phase(void *to, void *data)
{
    (void)data;
    *(uint8_t *)to = (uint8_t)phase;
}

static void read_load(void *to, void *data)
{
    double *at = (double *)to;

    (void)data;
    at[0] = 0.5;
    at[1] = (double)request;
}

static const struct lw_context own[] = {
    LW_USER_CONTEXT(lw_enum_u8(phase, 0, phases), read_phase, NULL),
    LW_USER_CONTEXT(lw_f64a(load, 0, 2), read_load, NULL),
    LW_USER_CONTEXT(lw_text(customer, 0, 12), read_customer, NULL),
    LW_USER_CONTEXT(lw_u64(request), read_request, &marker),
};

static void *thread(void *unused)
{
    (void)unused;
    LW_EVENT("s", "in a thread", lw_str(text, "a text"));
    return NULL;
}

static void contexts(void)
{
    struct lw_channel channel = plain();
    struct lw_context changing = LW_USER_CONTEXT(lw_str(text, ""), read_phase, NULL);
    struct lw_builder *builder;
    struct lw_session *session;
    pthread_t other;

    channel.contexts = LW_CONTEXT_TID;
    channel.user_contexts = &changing;
    channel.user_context_count = 1;
    CHECK(builder = lw_builder_new("contexts"));
    REFUSED(lw_builder_channel(builder, &channel) == 0, "context \"text\": its type has no fixed size");
    changing.field.ty = 0;
    REFUSED(lw_builder_channel(builder, &channel) == 0, "context 0: its name or type is none");
    changing = own[0];
    changing.read = NULL;
    REFUSED(lw_builder_channel(builder, &channel) == 0, "context \"phase\": its callback is a null pointer");
    channel.user_contexts = own;
    channel.user_context_count = sizeof(own) / sizeof(own[0]);
    CHECK(lw_builder_channel(builder, &channel) == 0);
    session = start(builder);
    LW_EVENT("s", "first");
    request = UINT64_C(1) << 40;
    customer = "a long name";
    phase = BUSY;
    LW_EVENT("s", "second", lw_u8(n, 2));
    customer = "a far too long name";
    phase = (enum phase)3;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
    lw_session_end(session);
}

/* Options of channels and sessions. */

static void options(void)
{
    struct lw_channel channel = plain();
    struct lw_builder *builder;
    struct lw_session *session;
    uint8_t uuid[16];
    int i;

    lw_builder_free(lw_builder_new("never started"));
    lw_builder_free(NULL);
    channel.payload_size = 1;
    builder = with_channel("options", &channel);
    channel.name = "rare";
    channel.payload_size = 0;
    channel.full_headers = 1;
    CHECK(lw_builder_channel(builder, &channel) == 0);
    CHECK(lw_builder_env(builder, "version", "1.2.3") == 0 && lw_builder_env(builder, "flavour", "sour") == 0);
    CHECK(lw_builder_retention(builder, 2, UINT64_MAX) == 0);
    CHECK(lw_builder_registry_size(builder, 64 << 10) == 0 && lw_builder_spans(builder, 0) == 0);
    CHECK(lw_builder_counters(builder, 2) == 0 && lw_builder_histograms(builder, 1) == 0);
    CHECK(lw_builder_listen(builder, 0) == 0 && lw_builder_preallocate(builder) == 0);
    CHECK(lw_builder_reservation(builder, LW_RESERVATION_LOCKED) == 0);
    session = start(builder);
    CHECK(!strcmp(lw_session_name(session), "options"));
    CHECK(lw_session_reservation(session) == LW_RESERVATION_LOCKED && lw_session_reservation(NULL) == 0);
    CHECK(*lw_session_note(session) && !*lw_session_note(NULL));
    CHECK(lw_session_uuid(session, uuid) == 0);
    for (i = 0; i < 16; i++)
        printf("%02x", uuid[i]);
    printf("\n");
    steps(0, 3);
    CHECK(lw_counter_add("requests", 40) == 0 && lw_counter_add("requests", 2) == 0);
    CHECK(lw_histogram_record("latency", 1000) == 0);
    lw_session_end(session);
}

/* Fields whose values are hidden by their names. */

static void hidden(void)
{
    const char *password = "canary-ZYXWVUTSRQPONM", *user = "canary-ABCDEFGHIJKLM", *other = "canary-ABCDEFGHIJKLM";
    const uint64_t token = UINT64_C(0x7a59585756555453);
    struct lw_channel channel = plain();
    struct lw_builder *builder = with_channel("hidden", &channel);
    struct lw_session *session;

    CHECK(lw_builder_secret(builder, "password") == 0 && lw_builder_secret(builder, "tok*") == 0);
    CHECK(lw_builder_hashed(builder, "user") == 0);
    CHECK(lw_builder_secret(builder, NULL) != 0);
    session = start(builder);
    LW_EVENT("s", "short", lw_u64(token));
    LW_EVENT("s", "text", lw_u32(n, 1), lw_str(password));
    LW_EVENT("s", "middle", lw_str(password), lw_u64(token), lw_str(user), lw_u32(n, 2));
    LW_EVENT("s", "equal", lw_u32(n, 3), lw_str(user, other));
    LW_EVENT("s", "shown", lw_u32(n, 4), lw_str(name, "a name"));
    lw_session_end(session);
}

/* Memory that stays: argv is the file, where its range begins, how long that is. */

static void memory(char **argv)
{
    struct lw_channel channel = plain();
    const uint64_t at = argv[1] ? strtoull(argv[1], NULL, 0) : 0, len = argv[1] ? strtoull(argv[2], NULL, 0) : 0;
    int reuse;

    for (reuse = 0; reuse < 2; reuse++) {
        int round;
        for (round = 0; round < 2; round++) {
            struct lw_builder *builder = with_channel("memory", &channel);
            struct lw_session *session;

            CHECK((len ? lw_builder_physical(builder, argv[0], at, len, reuse) : lw_builder_dax(builder, argv[0], reuse)) == 0);
            session = lw_builder_start(builder);
            if (!reuse && round == 1) {
                REFUSED(session, "lastwords recover");
                continue;
            }
            CHECK(session);
            steps(100 * (uint64_t)reuse, 100 * (uint64_t)reuse + 5);
            lw_session_end(session);
        }
    }
}

/* Rules, clear, and recording that is stopped. */

static bool enabled(void)
{
    return LW_EVENT_ENABLED("s", "step");
}

static bool error_enabled(void)
{
    return LW_EVENT_ENABLED_AT(LW_LEVEL_ERROR, "s", "step");
}

static void control(void)
{
    struct lw_channel channel = plain();
    struct lw_builder *builder = with_channel("control", &channel);
    struct lw_rule rule = { "s:step", "main", 0, 1, NULL };
    struct lw_session *session;

    channel.name = "rare";
    CHECK(lw_builder_channel(builder, &channel) == 0);
    CHECK(!enabled());
    session = start(builder);
    CHECK(enabled() && error_enabled());
    steps(0, 10);
    CHECK(lw_session_clear(session) == 0);
    steps(10, 12);
    CHECK(lw_session_recording(session, 0) == 0 && !enabled());
    steps(12, 15);
    CHECK(lw_session_recording(session, 1) == 0);
    CHECK(lw_session_rule(session, &rule) == 0);
    steps(15, 17);
    rule.glob = "*";
    rule.channel = "rare";
    rule.max_level = LW_LEVEL_WARN;
    rule.disable = 0;
    CHECK(lw_session_rule(session, &rule) == 0);
    CHECK(!enabled() && error_enabled());
    steps(17, 20);
    LW_EVENT_AT(LW_LEVEL_ERROR, "s", "error", lw_u64(n, 20));
    rule.glob = "s:*";
    rule.channel = "main";
    rule.max_level = 0;
    rule.filter = "n >= 31 && (n < 33 || text ~ \"l*g\" || level == \"error\")";
    CHECK(lw_session_rule(session, &rule) == 0);
    steps(30, 35);
    LW_EVENT_AT(LW_LEVEL_ERROR, "s", "error", lw_u64(n, 36));
    LW_EVENT("s", "text", lw_u64(n, 37), lw_str(text, "long"));
    LW_EVENT("s", "text", lw_u64(n, 38), lw_str(text, "log, but not at the end"));
    rule.filter = "n >";
    REFUSED(lw_session_rule(session, &rule) == 0, "filter");
    rule.filter = NULL;
    rule.channel = "none";
    REFUSED(lw_session_rule(session, &rule) == 0, "session control has no channel \"none\"");
    REFUSED(lw_session_rule(session, NULL) == 0, "the rule is a null pointer");
    channel.name = "late";
    CHECK(lw_session_create_channel(session, &channel, "n == 40") == 0);
    steps(39, 42);
    REFUSED(lw_session_create_channel(session, &channel, NULL) == 0, "already");
    CHECK(lw_error_code() == LW_ERROR_EXISTS);
    REFUSED(lw_session_create_channel(session, NULL, NULL) == 0, "the channel is a null pointer");
    REFUSED(lw_session_clear(NULL) == 0, "the session is a null pointer");
    lw_session_end(session);
    CHECK(!enabled() && !error_enabled());
}

/* Snapshots: of all streams, those of a CPU, or the stream of the last CPU. */

static void pin(int cpu)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
}

/* The first and the last CPU of this process. */
static void ends(int *first, int *last)
{
    cpu_set_t all;
    int cpu;

    *first = -1;
    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            *first = *first < 0 ? cpu : *first;
            *last = cpu;
        }
    }
}

/* None replaces a snapshot that is read; it can be read again until its reader is done. */
static void read_twice(struct lw_session *session)
{
    struct lw_snapshot_reader *reader;

    CHECK(reader = lw_session_read_snapshot(session));
    REFUSED(lw_session_snapshot(session, NULL) == 0, "snapshot");
    REFUSED(lw_session_disable_snapshots(session) == 0, "snapshot");
    lw_snapshot_reader_end(reader, 0);
    CHECK(reader = lw_session_read_snapshot(session));
    lw_snapshot_reader_end(reader, 1);
    REFUSED(lw_session_read_snapshot(session), "there is no snapshot");
    lw_snapshot_reader_end(NULL, 1);
}

static void snapshots(const char *of)
{
    struct lw_channel channel = plain();
    struct lw_session *session = start(with_channel("snapshots", &channel));
    struct lw_taken taken = { 0, 0, 0, 0, 0 };
    int first = 0, last = 0;

    ends(&first, &last);
    REFUSED(lw_session_snapshot(session, NULL) == 0, "no spare");
    CHECK(lw_session_enable_snapshots(session) == 0);
    CHECK(lw_session_snapshot(session, &taken) == 0 && taken.number == 1 && taken.clock != 0);
    read_twice(session);
    CHECK(lw_session_disable_snapshots(session) == 0);
    REFUSED(lw_session_snapshot(session, NULL) == 0, "no spare");
    CHECK(lw_session_enable_snapshots(session) == 0);
    pin(first);
    steps(0, 10);
    pin(last);
    steps(10, 20);
    if (!strcmp(of, "cpu")) {
        REFUSED(lw_session_snapshot_cpu(session, 1 << 20, &taken) == 0, "CPU 1048576");
        CHECK(lw_session_snapshot_cpu(session, (uint32_t)first, &taken) == 0);
    } else if (!strcmp(of, "stream")) {
        REFUSED(lw_session_snapshot_stream(session, 1 << 20, &taken) == 0, "stream 1048576");
        CHECK(lw_session_snapshot_stream(session, (uint32_t)last, &taken) == 0);
    } else {
        CHECK(lw_session_snapshot(session, &taken) == 0 && taken.dropped == 0);
    }
    CHECK(taken.number == 2 && taken.in_flight == 0);
    steps(20, 30);
    printf("%d\n", first == last);
    lw_session_end(session);
}

/* Each of two triggers leaves a snapshot of its own. The end of the session waits until both are saved. */
static void triggers(void)
{
    struct lw_channel channel = plain();
    struct lw_builder *builder = with_channel("triggers", &channel);
    struct lw_session *session;

    CHECK(lw_builder_snapshot(builder) == 0 && lw_builder_trigger_limit(builder, 2, 60000) == 0);
    CHECK(lw_builder_save_snapshots(builder, 1) == 0 && lw_builder_trigger_window(builder, 3600000, 0) == 0);
    REFUSED(lw_builder_trigger_limit(NULL, 1, 1) == 0, "null pointer");
    session = start(builder);
    CHECK(lw_session_disable(session, "lastwords:*") == 0);
    steps(0, 10);
    lw_trigger("first");
    lw_trigger(NULL);
    steps(10, 20);
    lw_trigger("\xc3 second");
    lw_session_end(session);
}

/* A session that was ended stays, with the handlers of crashes or without. */
static void crash(void)
{
    const int signals[] = { 6 };
    struct lw_session *session = lw_session_begin("crash");
    const int other = 2;

    CHECK(session);
    CHECK(lw_install_signal_handlers(signals, 1) == 0);
    REFUSED(lw_install_signal_handlers(&other, 1) == 0, "2");
    printf("%s\n", lw_session_folder(session));
    steps(0, 5);
    lw_session_end(session);
}

/* The one call: nothing ends its session before the process. */
static void one_call(const char *name)
{
    const struct lw_session *session = lw_start(name);

    CHECK(session && lw_start("another") == session);
    lw_session_end((struct lw_session *)session);
    lw_session_remove((struct lw_session *)session);
    CHECK(lw_session_finish((struct lw_session *)session, 3) == 3);
    printf("%s\n%s\n", lw_session_folder(session), lw_session_problem(session));
    fflush(stdout);
    steps(0, 5);
    abort();
}

/* Sessions that end in each way. The status of the last is the program's. */
static int finish(void)
{
    int status;

    for (status = 0; status < 5; status++) {
        struct lw_builder *builder = lw_builder_new("finish");

        CHECK(lw_builder_retention(builder, 2, UINT64_MAX) == 0);
        lw_session_remove(lw_session_begin("removed"));
        CHECK(lw_session_finish(start(builder), status % 2) == status % 2);
    }
    return lw_session_finish(NULL, 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "contexts"))
        contexts();
    else if (!strcmp(what, "options"))
        options();
    else if (!strcmp(what, "hidden"))
        hidden();
    else if (!strcmp(what, "memory") && argc > 2)
        memory(argv + 2);
    else if (!strcmp(what, "control"))
        control();
    else if (!strcmp(what, "snapshots") && argc > 2)
        snapshots(argv[2]);
    else if (!strcmp(what, "triggers"))
        triggers();
    else if (!strcmp(what, "crash"))
        crash();
    else if (!strcmp(what, "start"))
        one_call(argc > 2 ? argv[2] : NULL);
    else if (!strcmp(what, "finish"))
        return finish();
    else
        return 2;
    return 0;
}
