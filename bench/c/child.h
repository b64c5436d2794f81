/*
 * What every contender written in C shares: the command line, the pinned
 * threads, the clock and the one line of JSON. `bench/src/job.rs` is the same
 * for the contenders written in Rust; keep the two alike, or they no longer
 * measure the same thing.
 *
 *   PROGRAM NAME PAYLOAD EVENTS CPU[,CPU...]
 *
 * One thread for each CPU, each recording EVENTS events; the times printed are
 * means over the threads.
 */
#ifndef LASTWORDS_BENCH_CHILD_H
#define LASTWORDS_BENCH_CHILD_H

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define CHILD_MAX_THREADS 64

/* Records `events` events. Called once to warm up, then once more, timed. */
typedef void (*child_loop)(uint64_t events);

/* The same four strings as in `bench/src/job.rs`, 16 bytes each. */
static const char *const child_strings[4] = {
	"request-accepted", "request-rejected", "response-delayed", "session-detached",
};

/* A number that the compiler knows nothing about, at no cost. */
static inline uint64_t opaque(uint64_t value)
{
	__asm__ volatile("" : "+r"(value));
	return value;
}

/* The time stamp counter. */
static inline uint64_t clock_read(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
#error "no time stamp counter known for this architecture"
#endif
}

struct child_thread {
	pthread_t handle;
	pthread_barrier_t *start;
	child_loop loop;
	uint64_t events;
	int cpu;
	double wall_ns;
	double cpu_ns;
	long preempted;
};

static double child_now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static long child_preempted(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

/*
 * Records `events` events. Where LASTWORDS_BENCH_BURST is set, the thread rests
 * for a millisecond after each so many events, so that whoever sends them
 * elsewhere can keep up.
 */
static void child_record(child_loop loop, uint64_t events)
{
	const char *asked = getenv("LASTWORDS_BENCH_BURST");
	uint64_t burst = asked ? strtoull(asked, NULL, 10) : 0;
	const struct timespec rest = { 0, 1000000 };

	while (burst != 0 && events > burst) {
		loop(burst);
		nanosleep(&rest, NULL);
		events -= burst;
	}
	loop(events);
}

static void *child_run(void *argument)
{
	struct child_thread *self = argument;
	uint64_t warm = self->events / 10 < 10000 ? 10000 : self->events / 10;
	double wall, cpu;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(self->cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
		fprintf(stderr, "cannot pin a thread to CPU %d\n", self->cpu);
		exit(1);
	}
	child_record(self->loop, warm);
	pthread_barrier_wait(self->start);
	self->preempted = -child_preempted();
	cpu = child_now(CLOCK_THREAD_CPUTIME_ID);
	wall = child_now(CLOCK_MONOTONIC);
	child_record(self->loop, self->events);
	self->wall_ns = child_now(CLOCK_MONOTONIC) - wall;
	self->cpu_ns = child_now(CLOCK_THREAD_CPUTIME_ID) - cpu;
	self->preempted += child_preempted();
	return NULL;
}

static int child_parse_cpus(char *list, struct child_thread *threads)
{
	int count = 0;

	for (char *item = strtok(list, ","); item && count < CHILD_MAX_THREADS;
	     item = strtok(NULL, ","))
		threads[count++].cpu = atoi(item);
	return count;
}

static void child_print(const struct child_thread *threads, int count, uint64_t events)
{
	double wall = 0, cpu = 0;
	long preempted = 0;

	for (int i = 0; i < count; i++) {
		wall += threads[i].wall_ns / (double)events / count;
		cpu += threads[i].cpu_ns / (double)events / count;
		preempted += threads[i].preempted;
	}
	printf("{\"ns_per_event\": %.4f, \"cpu_ns_per_event\": %.4f, \"events\": %llu, "
	       "\"threads\": %d, \"preempted\": %ld}\n",
	       wall, cpu, (unsigned long long)events * count, count, preempted);
}

/* Runs `a` or `b` as the command line asks, and prints the result. */
static int child_main(int argc, char **argv, child_loop a, child_loop b)
{
	static struct child_thread threads[CHILD_MAX_THREADS];
	pthread_barrier_t start;
	uint64_t events;
	int count;

	if (argc != 5) {
		fprintf(stderr, "usage: %s NAME a|b EVENTS CPU[,CPU...]\n", argv[0]);
		return 2;
	}
	events = strtoull(argv[3], NULL, 10);
	count = child_parse_cpus(argv[4], threads);
	if (events == 0 || count == 0) {
		fprintf(stderr, "%s: EVENTS and CPU must not be empty\n", argv[0]);
		return 2;
	}
	pthread_barrier_init(&start, NULL, (unsigned)count);
	for (int i = 0; i < count; i++) {
		threads[i].start = &start;
		threads[i].events = events;
		threads[i].loop = strcmp(argv[2], "b") == 0 ? b : a;
		if (pthread_create(&threads[i].handle, NULL, child_run, &threads[i]) != 0) {
			fprintf(stderr, "%s: cannot start a thread\n", argv[0]);
			return 1;
		}
	}
	for (int i = 0; i < count; i++)
		pthread_join(threads[i].handle, NULL);
	child_print(threads, count, events);
	return 0;
}

#endif
