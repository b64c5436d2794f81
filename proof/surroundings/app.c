/* An application that gets into a surrounding: app HOW [THEN]. HOW is what it does after its first events, or where its session is, THEN how it ends: `kill`, `abort`,
 * `sleep` (it stays until it is killed), or nothing for exit status 7. Compiled with -DPLAIN it is the same application without a
 * recorder, whose exit status the other must have. Events are numbered: `n` of thread 0 counts up from 0. */
#define _GNU_SOURCE
#ifdef PLAIN
#define LW_EVENT(...) ((void)0)
#define begin(how) ((void)0)
#define end() ((void)0)
#else
#include <lastwords.h>
static struct lw_session *session;
static void begin(const char *how);
static void end(void);
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PLAIN
static void begin(const char *how)
{
    struct lw_builder *builder = lw_builder_new("app");
    struct lw_channel channel;
    memset(&channel, 0, sizeof channel);
    channel.name = "main";
    channel.sub_buffer_size = 4 << 20;
    channel.sub_buffers = 8;
    channel.discard = 1;
    if (!strcmp(how, "vfork") || !strcmp(how, "clone"))
        lw_builder_channel(builder, &channel);
    if (!strcmp(how, "heap") || !strcmp(how, "memfd"))
        lw_builder_memory(builder, how[0] == 'h' ? LW_MEMORY_HEAP : LW_MEMORY_MEMFD);
    session = lw_builder_start_or_disabled(builder);
    if (*lw_session_problem(session))
        fprintf(stderr, "not recorded: %s\n", lw_session_problem(session));
}

static void end(void)
{
    lw_session_end(session);
}
#endif

static uint64_t next;

static void record(unsigned count)
{
    while (count--) {
        LW_EVENT("app", "step", lw_u64(n, next));
        next++;
    }
}

/* Says on stdout that all is done, how many events there are, and who says it. */
static void tell(void)
{
    printf("%llu %d\n", (unsigned long long)next, (int)getpid());
    fflush(stdout);
}

static void finish(const char *then)
{
    tell();
    if (!strcmp(then, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(then, "abort"))
        abort();
    while (!strcmp(then, "sleep"))
        pause();
    end();
    exit(7);
}

static void *goes_on(void *then)
{
    usleep(200000);
    record(100);
    finish(then);
    return NULL;
}

static volatile int stop;

static void *beside(void *unused)
{
    uint64_t i = 0;
    (void)unused;
    while (!stop && i < 300000) {
        LW_EVENT("app", "beside", lw_u64(n, i));
        i++;
    }
    return NULL;
}

static int cloned(void *round)
{
    (void)round;
    LW_EVENT("app", "vforked", lw_u64(n, (uint64_t) * (int *)round));
    _exit(0);
}

/* Children with the same memory and the same thread-local storage, beside which the thread that made them goes on. */
static void clones(void)
{
    static char stack[1 << 16] __attribute__((aligned(16)));
    pthread_t thread;
    pthread_create(&thread, NULL, beside, NULL);
    for (int round = 0; round < 500; round++) {
        pid_t child = clone(cloned, stack + sizeof stack, CLONE_VM | SIGCHLD, &round);
        record(10);
        waitpid(child, NULL, 0);
    }
    stop = 1;
    pthread_join(thread, NULL);
}

static void vforks(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, beside, NULL);
    for (int round = 0; round < 500; round++) {
        pid_t child = vfork();
        if (child == 0) {
            LW_EVENT("app", "vforked", lw_u64(n, (uint64_t)round));
            _exit(0);
        }
        record(10);
        waitpid(child, NULL, 0);
    }
    stop = 1;
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "", *then = argc > 2 ? argv[2] : "exit";
    struct rlimit no_core = { 0, 0 };
    pthread_t thread;
    sigset_t signals;
    int which;
    setrlimit(RLIMIT_CORE, &no_core);
    begin(how);
    record(1000);
    if (!strcmp(how, "chroot")) {
        if (chroot(argv[3]) || chdir("/"))
            return 1;
    } else if (!strcmp(how, "closefrom")) {
        int out = dup(1);
        closefrom(out + 1);
        for (int fd = 3; fd < out; fd++)
            close(fd);
    } else if (!strcmp(how, "fork")) {
        /* The parent dies at once; the child goes on. */
        if (fork() > 0)
            _exit(7);
        setsid();
        usleep(200000);
    } else if (!strcmp(how, "thread")) {
        pthread_create(&thread, NULL, goes_on, (void *)then);
        pthread_exit(NULL);
    } else if (!strcmp(how, "exec")) {
        tell();
        execl("/bin/sh", "sh", "-c", !strcmp(then, "sleep") ? "exec sleep 1000" : "exit 7", (char *)NULL);
        return 1;
    } else if (!strcmp(how, "vfork")) {
        vforks();
    } else if (!strcmp(how, "clone")) {
        clones();
    } else if (!strcmp(how, "many") || !strcmp(how, "later")) {
        if (how[0] == 'l') {
            /* Its surrounding changes until SIGUSR1. */
            sigemptyset(&signals);
            sigaddset(&signals, SIGUSR1);
            sigprocmask(SIG_BLOCK, &signals, NULL);
            /* Nobody reads what it says later. */
            signal(SIGPIPE, SIG_IGN);
            tell();
            sigwait(&signals, &which);
        }
        for (int round = 0; round < 3000; round++)
            record(100);
    }
    record(1000);
    finish(then);
    return 0;
}
