/*
 * The floor F: the least that any recorder can do. A time stamp and a store of
 * 32 bytes into a ring of 64 KiB that only this thread writes.
 */
#include "child.h"

#define RING_RECORDS (64 * 1024 / 32)

struct record {
	uint64_t clock;
	uint64_t number;
	uint64_t value;
	uint64_t unused;
};

static _Thread_local _Alignas(64) struct record ring[RING_RECORDS];

static void record_events(uint64_t events)
{
	for (uint64_t i = 0; i < events; i++) {
		uint64_t number = opaque(i);

		ring[i % RING_RECORDS] = (struct record){
			.clock = clock_read(),
			.number = (uint32_t)number,
			.value = number ^ 0x5555555555555555,
		};
		/* The record must be in memory before the next one begins. */
		__asm__ volatile("" ::: "memory");
	}
}

int main(int argc, char **argv)
{
	return child_main(argc, argv, record_events, record_events);
}
