/*
 * A model: the least that this design asks of a recorder. A time stamp, its 27
 * bits' overflow since the last event, room in the sub-buffer, header and
 * payload, the position that publishes them. Left out is what makes it of use:
 * rings of a CPU that any thread finds, restartable sequences, rules, snapshots,
 * and all that is done where a sub-buffer ends.
 */
#include "child.h"

#define SUB_BUFFER (64 * 1024)
#define SUB_BUFFERS 4
#define HEADER 84
#define TRAILER 16

struct control {
	uint64_t position;
	uint64_t clock;
	uint64_t extended;
};

static _Thread_local _Alignas(64) struct control control;
static _Thread_local _Alignas(64) char ring[SUB_BUFFERS * SUB_BUFFER];

/* Where an event of that size goes; its header is there. */
static inline char *reserve(uint64_t size, uint32_t id)
{
	uint64_t position = control.position, now;
	uint32_t header;
	char *event;

	if (__builtin_expect(position % SUB_BUFFER < HEADER ||
			     position % SUB_BUFFER + size > SUB_BUFFER - TRAILER, 0))
		position = (position + SUB_BUFFER - 1) / SUB_BUFFER * SUB_BUFFER + HEADER;
	event = ring + position % sizeof(ring);
	now = clock_read();
	if (__builtin_expect((now - control.clock) >> 27 != 0, 0))
		control.extended++;
	header = (uint32_t)now << 5 | id;
	memcpy(event, &header, sizeof(header));
	control.clock = now;
	control.position = position + size;
	return event + sizeof(header);
}

static inline char *numbers(char *to, uint64_t number)
{
	uint32_t first = (uint32_t)number;
	uint64_t second = number ^ 0x5555555555555555;

	memcpy(to, &first, sizeof(first));
	memcpy(to + sizeof(first), &second, sizeof(second));
	return to + sizeof(first) + sizeof(second);
}

static void loop_a(uint64_t events)
{
	for (uint64_t i = 0; i < events; i++) {
		numbers(reserve(16, 1), opaque(i));
		/* The event must be in memory before the next one begins. */
		__asm__ volatile("" ::: "memory");
	}
}

static void loop_b(uint64_t events)
{
	for (uint64_t i = 0; i < events; i++) {
		uint64_t number = opaque(i);
		char *text = numbers(reserve(16 + 17, 2), number);

		memcpy(text, child_strings[number % 4], 17);
		__asm__ volatile("" ::: "memory");
	}
}

int main(int argc, char **argv)
{
	return child_main(argc, argv, loop_a, loop_b);
}
