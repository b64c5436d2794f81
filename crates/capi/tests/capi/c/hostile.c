/*
 * What a careless or unlucky program does to the library: no arguments, no text, no session, signals, forks. The first argument
 * says what. Compiled as C and as C++. Prints its session's folder where there is something to read.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lastwords.h>

#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #holds, lw_error()); \
            exit(1); \
        } \
    } while (0)

static struct lw_session *begin(void)
{
    struct lw_channel channel;
    struct lw_builder *builder = lw_builder_new("hostile");
    struct lw_session *session;

    memset(&channel, 0, sizeof(channel));
    channel.name = "main";
    channel.sub_buffer_size = 1 << 16;
    CHECK(lw_builder_channel(builder, &channel) == LW_OK);
    CHECK(session = lw_builder_start(builder));
    return session;
}

/* A session that cannot start is disabled, and so is one without a builder: the program goes on. */
static void disabled(void)
{
    struct lw_builder *builder = lw_builder_new("disabled");
    struct lw_session *session;
    uint8_t uuid[16];
    int i;

    CHECK(lw_builder_dir(builder, "/dev/null/none") == LW_OK);
    for (i = 0; i < 2; i++) {
        CHECK(session = lw_builder_start_or_disabled(i ? NULL : builder));
        CHECK(*lw_session_problem(session) && strstr(lw_session_note(session), "disabled"));
        CHECK(!*lw_session_folder(session) && lw_session_enable(session, "*") == LW_OK);
        CHECK(lw_session_clear(session) == LW_ERROR_UNSUPPORTED && lw_session_uuid(session, uuid) == LW_OK);
        CHECK(lw_session_recording(session, 0) == LW_OK && lw_session_finish(session, 3) == 3);
    }
    CHECK((session = lw_builder_start_or_disabled(lw_builder_new("well"))) && !*lw_session_problem(session));
    lw_session_remove(session);
}

/* What a builder takes, the session has. What it refuses, it names, and stays as it was. */
static void choices(void)
{
    static const uint32_t reservations[] = { LW_RESERVATION_LOCKLESS, LW_RESERVATION_LOCKED };
    struct lw_builder *builder;
    struct lw_session *session;
    int i;

#define NAMED(what, call) CHECK((call) == LW_ERROR_ARGUMENT && strstr(lw_error(), what))
    for (i = 0; i < 2; i++) {
        builder = lw_builder_new("chosen");
        CHECK(lw_builder_reservation(builder, reservations[i]) == LW_OK);
        CHECK(lw_builder_clock(builder, LW_CLOCK_REALTIME) == LW_OK);
        NAMED("reservation 9 is none of LW_RESERVATION_RSEQ, ", lw_builder_reservation(builder, 9));
        NAMED("clock 9 is none of LW_CLOCK_MONOTONIC, ", lw_builder_clock(builder, 9));
        NAMED("memory 9 is none of LW_MEMORY_HEAP, ", lw_builder_memory(builder, 9));
        NAMED("the channel is a null pointer", lw_builder_channel(builder, NULL));
        NAMED("the path is a null pointer", lw_builder_dax(builder, NULL, 0));
        NAMED("the path is a null pointer", lw_builder_physical(builder, NULL, 0, 4096, 0));
        NAMED("its value is a null pointer", lw_builder_env(builder, "key", NULL));
        NAMED("the builder is a null pointer", lw_builder_remove_at_end(NULL));
        CHECK(session = lw_builder_start(builder));
        CHECK(lw_session_reservation(session) == reservations[i]);
        lw_session_remove(session);
    }
    builder = lw_builder_new("limited");
    CHECK(lw_builder_size_limit(builder, 1 << 16) == LW_OK);
    CHECK(!lw_builder_start(builder) && strstr(lw_error(), "its limit is 65536"));
}

/* Every function refuses what is no object, and says so; nothing crashes. */
static void nulls(void)
{
    struct lw_session *session = begin();
    struct lw_builder *builder = lw_builder_new("nulls");
    struct lw_rule rule = { "*", NULL, 0, 0, NULL };
    struct {
        struct lw_rule rule;
        uint64_t more;
    } newer = { rule, 0 };
    char glob[200] = "x";
    int code;

    CHECK(!strcmp(lw_error(), "") && lw_error_code() == LW_OK);
#define REFUSED(wanted, call) CHECK((call) == wanted && lw_error_code() == wanted && *lw_error())
#define NONE(call) REFUSED(LW_ERROR_ARGUMENT, call)
    NONE(lw_builder_channel(builder, NULL));
    NONE(lw_builder_errors_channel(NULL));
    NONE(lw_builder_memory(builder, 0));
    NONE(lw_builder_dax(builder, NULL, 0));
    NONE(lw_builder_physical(builder, NULL, 0, 0, 0));
    NONE(lw_builder_reservation(builder, 77));
    NONE(lw_builder_persist(builder, 3));
    NONE(lw_builder_clock(builder, 0));
    NONE(lw_builder_size(NULL, 0));
    NONE(lw_builder_preallocate(NULL));
    NONE(lw_builder_size_limit(NULL, 0));
    NONE(lw_builder_seconds(NULL, 1, 0));
    NONE(lw_builder_registry_size(NULL, 0));
    NONE(lw_builder_spans(NULL, 0));
    NONE(lw_builder_counters(NULL, 0));
    NONE(lw_builder_histograms(NULL, 0));
    NONE(lw_counter_add(NULL, 1));
    NONE(lw_counter_add("", 1));
    NONE(lw_histogram_record("\x1f", 1));
    NONE(lw_builder_shared(NULL));
    NONE(lw_builder_dir(builder, NULL));
    NONE(lw_builder_events(builder, "\xff"));
    NONE(lw_builder_env(builder, "key", NULL));
    NONE(lw_builder_env(builder, "\x80", "value"));
    NONE(lw_builder_snapshot(NULL));
    NONE(lw_builder_listen(NULL, 0));
    NONE(lw_session_uuid(session, NULL));
    NONE(lw_session_enable(session, NULL));
    NONE(lw_session_disable(NULL, "*"));
    NONE(lw_session_rule(session, NULL));
    NONE(lw_session_recording(NULL, 0));
    NONE(lw_session_clear(NULL));
    NONE(lw_session_enable_snapshots(NULL));
    NONE(lw_session_disable_snapshots(NULL));
    NONE(lw_session_snapshot(NULL, NULL));
    NONE(lw_session_snapshot_sized(session, 9, 0, NULL, 0));
    NONE(lw_install_signal_handlers(NULL, 3));
    CHECK(!lw_session_begin(NULL) && lw_error_code() == LW_ERROR_ARGUMENT);
    CHECK(!lw_session_begin("\xc3") && strstr(lw_error(), "UTF-8"));
    CHECK(!lw_session_begin("a/b") && lw_error_code() == LW_ERROR_ARGUMENT);
    CHECK(!lw_builder_start(NULL) && !lw_session_read_snapshot(NULL));
    CHECK(!*lw_session_name(NULL) && !*lw_session_folder(NULL) && !*lw_session_note(NULL) && !lw_session_reservation(NULL));
    lw_session_end(NULL);
    lw_builder_free(NULL);
    lw_snapshot_reader_end(NULL, 1);
    disabled();
    /* Other kinds of errors have other codes. */
    REFUSED(LW_ERROR_NO_SNAPSHOT, lw_session_snapshot(session, NULL));
    CHECK(!lw_session_read_snapshot(session) && lw_error_code() == LW_ERROR_NO_SNAPSHOT);
    CHECK(lw_builder_dir(builder, "/dev/null/none") == LW_OK);
    CHECK(!lw_builder_start(builder) && lw_error_code() == LW_ERROR_SYSTEM);
    builder = lw_builder_new("small");
    CHECK(lw_builder_size_limit(builder, 4096) == LW_OK);
    CHECK(!lw_builder_start(builder) && lw_error_code() == LW_ERROR_MEMORY);
    /* A newer program's structure: its new fields must be zero. */
    CHECK(lw_session_rule_sized(session, &newer.rule, sizeof(newer)) == LW_OK);
    newer.more = 1;
    REFUSED(LW_ERROR_UNSUPPORTED, lw_session_rule_sized(session, &newer.rule, sizeof(newer)));
    CHECK(lw_session_rule_sized(session, &rule, offsetof(struct lw_rule, max_level)) == LW_OK);
    NONE(lw_session_rule_sized(session, &rule, 0));
    REFUSED(LW_ERROR_UNSUPPORTED, lw_session_enable(session, ""));
    for (code = LW_OK; code == LW_OK && strlen(glob) < 100; glob[strlen(glob)] = 'x')
        code = lw_session_enable(session, glob);
    CHECK(code == LW_ERROR_FULL);
    for (code = 0; code > -11; code--)
        CHECK(*lw_strerror(code) && strcmp(lw_strerror(code), lw_strerror(1)));
    lw_session_end(session);
}

static char large[300000];

/* One event of each kind: words, a text behind them, parts, what is larger than a sub-buffer, a length that cannot be. */
static void every_kind(uint32_t n)
{
    const uint32_t *none = NULL;
    const char *no_text = NULL;
    int wrong = -1;

    LW_EVENT("h", "nothing");
    LW_EVENT("h", "words", lw_u32(n), lw_u64(m, n));
    LW_EVENT("h", "text", lw_u32(n), lw_str(text, "a text of some length"));
    LW_EVENT("h", "null", lw_str(no_text), lw_u32s(none, none, 0));
    LW_EVENT("h", "parts", lw_str(text, "first"), lw_bytes(raw, large, 3000), lw_u32(n));
    LW_EVENT("h", "too large", lw_bytes(raw, large, sizeof(large)));
    LW_EVENT("h", "wrong", lw_bytes(raw, large, wrong));
    LW_EVENT("h", "far too long", lw_bytes(raw, large, (UINT64_C(1) << 32) + 3));
}

static void *leaves_errno(void *unused)
{
    (void)unused;
    errno = 4321;
    every_kind(7);
    CHECK(errno == 4321);
    return NULL;
}

static volatile sig_atomic_t seen;

static void previous(int signal)
{
    seen = errno == 1234 ? signal : -1;
    errno = 1;
}

/* Events and handlers leave errno as it was: at their first and later use, in a new thread, in a child, in any state. */
static void keeps_errno(void)
{
    struct lw_session *session = begin();
    pthread_t thread;
    int status, round;
    pid_t child;

    CHECK(signal(SIGFPE, previous) != SIG_ERR && lw_install_signal_handlers(NULL, 0) == LW_OK);
    for (round = 0; round < 5; round++) {
        errno = 4321;
        every_kind(0);
        CHECK(errno == 4321);
        CHECK(pthread_create(&thread, NULL, leaves_errno, NULL) == 0 && pthread_join(thread, NULL) == 0);
        CHECK((child = fork()) >= 0);
        if (child == 0) {
            leaves_errno(NULL);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        /* Stopped, recording again, by rules, without a session. */
        if (round == 0)
            CHECK(lw_session_recording(session, 0) == LW_OK);
        if (round == 1)
            CHECK(lw_session_recording(session, 1) == LW_OK && lw_session_disable(session, "h:t*") == LW_OK);
        if (round == 2) {
            errno = 1234;
            raise(SIGFPE);
            CHECK(seen == SIGFPE && errno == 1234);
        }
        if (round == 3)
            lw_session_end(session);
    }
}

static int running = 1;

static void *floods(void *unused)
{
    uint32_t n;

    (void)unused;
    for (n = 0; __atomic_load_n(&running, __ATOMIC_RELAXED); n++)
        every_kind(n);
    return NULL;
}

/* Sessions begin and end while threads record. */
static void ends(void)
{
    pthread_t threads[3];
    int i;

    for (i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, floods, NULL) == 0);
    for (i = 0; i < 30; i++) {
        struct lw_session *session = begin();

        usleep(1000);
        lw_session_end(session);
    }
    __atomic_store_n(&running, 0, __ATOMIC_RELAXED);
    for (i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static volatile uint64_t ticks;

static void on_tick(int signal)
{
    (void)signal;
    LW_EVENT("h", "tick", lw_u64(n, ticks));
    ticks = ticks + 1;
}

/* A handler interrupts what records, and what calls functions; a child records and ends its handle. Prints how many events of
 * each name there are. */
static void interrupted(void)
{
    const struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    struct lw_session *session = begin();
    uint64_t n;
    int status;
    pid_t child;

    printf("%s\n", lw_session_folder(session));
    fflush(stdout);
    CHECK(signal(SIGALRM, on_tick) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (n = 0; n < 3000 || ticks < 50; n++) {
        LW_EVENT("h", "step", lw_u64(n), lw_str(text, "interrupted"));
        if (n % 100 == 0)
            CHECK(lw_session_enable(NULL, "*") == LW_ERROR_ARGUMENT);
        if (n > 3000)
            usleep(100);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        for (n = 0; n < 10; n++)
            LW_EVENT("h", "child", lw_u64(n));
        lw_session_end(session);
        LW_EVENT("h", "after the end", lw_u64(n));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    every_kind(1);
    LW_EVENT("h", "parent");
    printf("%d %d\n", (int)ticks, (int)n);
    fflush(stdout);
    kill(getpid(), SIGKILL);
}

#ifdef __cplusplus
/* Records before main, and begins the session there. */
struct early {
    struct lw_session *session;
    early() : session(lw_session_begin("early"))
    {
        LW_EVENT("h", "constructor", lw_bool(begun, session != NULL));
    }
};
static early before_main;

static uint32_t throws() { throw 5; }

/* An exception out of an argument: the event is not recorded, and the next is. */
static void exceptions(void)
{
    int i, caught = 0;

    CHECK(before_main.session);
    printf("%s\n", lw_session_folder(before_main.session));
    fflush(stdout);
    for (i = 0; i < 3; i++) {
        try {
            LW_EVENT("h", "never", lw_u32(n, throws()));
        } catch (int number) {
            caught += number;
        }
        LW_EVENT("h", "caught", lw_i32(caught));
    }
    kill(getpid(), SIGKILL);
}
#endif

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "nulls"))
        nulls();
    else if (!strcmp(what, "choices"))
        choices();
    else if (!strcmp(what, "errno"))
        keeps_errno();
    else if (!strcmp(what, "ends"))
        ends();
    else if (!strcmp(what, "interrupted"))
        interrupted();
#ifdef __cplusplus
    else if (!strcmp(what, "exceptions"))
        exceptions();
#endif
    else
        return 2;
    return 0;
}
