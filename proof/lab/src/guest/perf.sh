#!/bin/busybox sh
# The first program of a guest that panics while two programs `perf record` run. A trace instance records the same events of the scheduler.
. /prelude
T=/sys/kernel/tracing
I=$T/instances/truth
mount -t tracefs tr $T || fail "tracefs"
mkdir $I || fail "the instance"
export HOME=/t
cd /t || fail "cd"
echo perf > $I/trace_clock
echo 16384 > $I/buffer_size_kb
echo 1 > $I/events/sched/sched_switch/enable || fail "sched_switch"

perf record -a -m 512 -e sched:sched_switch -e cpu-clock -o kept.data > kept.said 2>&1 &
kept=$!
perf record -a -m 16 --overwrite -e sched:sched_switch -o over.data > over.said 2>&1 &
over=$!

# Runs a command until it succeeds, a minute at most.
until_so() {
    for n in $(seq 600); do
        "$@" 2> /dev/null && return
        sleep 0.1
    done
    cat kept.said over.said
    fail "$*"
}
maps() { [ "$(grep -c perf_event /proc/$1/maps)" -ge "$(nproc)" ]; }
has_read() { [ "$(wc -c < kept.data)" -gt 300000 ]; }
work() {
    for n in $(seq "$1"); do
        yes "$n" | head -c 60000 | cat > /dev/null
    done
}

until_so maps $kept
until_so maps $over
work 20
until_so has_read
# The first recording stops reading its buffers; the second one never reads until it ends.
kill -STOP $kept
work 30
echo "PERF kept $kept over $over"
echo "LAB-TRUTH-DONE"
sleep 0.3
echo c > /proc/sysrq-trigger
