#!/bin/busybox sh
# The first program of a guest in which `lastwords record` uses what this machine's kernel may lack: probes, synthetic events, tracers,
# triggers, a receiver over vsock. What the kernel itself prints of the same instance, and what trace-cmd records of the same events,
# goes to the first disk together with the files of `record`. The commands of `record` are this script too, with the name of a case.
T=/sys/kernel/tracing
O=/t/out
OWN=$T/instances/own

# The work that is recorded: programs that open files and are started.
work() {
    for n in 1 2 3 4 5 6; do
        cat /proc/self/stat /proc/interrupts > /dev/null
        trace-cmd --version > /dev/null 2>&1
    done
}

# The command of a recording. It ends with what the kernel prints of the instance of `record`.
if [ "$1" = work ]; then
    work
    echo 0 > $OWN/tracing_on
    # Not by `cat`, whose events are compared.
    dd if=$OWN/trace of="$O/$2.kernel" bs=64k 2> /dev/null
    exit 0
fi
# Starts programs with the numbers from $1 on, $2 of them, each after $3 seconds.
numbered() {
    n=$1
    while [ "$n" -lt $(($1 + $2)) ]; do
        ln -sf /bin/busybox "/t/n$n"
        [ -n "$3" ] && sleep "$3"
        "/t/n$n" > /dev/null 2>&1
        n=$((n + 1))
    done
}
# Four times ten numbered programs, a trigger, and its snapshot; then ten more.
if [ "$1" = many ]; then
    for n in $(seq 600); do
        grep -q watching $O/many.watched && break
        sleep 0.1
    done
    for s in 1 2 3 4; do
        numbered $((s * 10)) 10
        trace-cmd --version > /dev/null 2>&1
        for n in $(seq 600); do
            [ -d "$O/many.dat.snapshot-$s" ] && break
            sleep 0.1
        done
        # The trigger is set again when the snapshot is saved.
        for n in $(seq 600); do
            grep -q count=1 $OWN/events/sched/sched_process_exec/trigger && break
            sleep 0.1
        done
    done
    numbered 50 10
    exit 0
fi
# Numbered programs before and behind a trigger.
if [ "$1" = window ]; then
    numbered 100 30 0.05
    trace-cmd --version > /dev/null 2>&1
    numbered 130 60 0.05
    exit 0
fi
# Two triggers, of which the second comes while the limit holds.
if [ "$1" = limit ]; then
    trace-cmd --version > /dev/null 2>&1
    for n in $(seq 600); do
        [ -d "$O/limit.dat.snapshot-1" ] && break
        sleep 0.1
    done
    trace-cmd --version > /dev/null 2>&1
    exit 0
fi
# The same, recorded by trace-cmd too.
if [ "$1" = peer ]; then
    event=$(cd $T/events && ls -d */"$3" | head -n 1)
    exec trace-cmd record -q -B peer -e "$event" -C mono -b 4096 -o "$O/$2.peer.dat" sh /init work "$2" > "$O/$2.peer" 2>&1
fi

. /prelude
export HOME=/t NO_COLOR=1
mount -t tracefs tr $T || fail "tracefs"
mkdir -p /dev/shm /t/out
mount -t tmpfs s /dev/shm
cd /t || fail "cd"
uname -r > $O/release

# state NAME: all of the machine's tracing that a recording might leave changed.
state() {
    (
        cd $T || exit
        for f in set_event dynamic_events kprobe_events uprobe_events synthetic_events tracing_on current_tracer trace_clock \
            buffer_size_kb set_ftrace_filter set_graph_function; do
            echo "== $f"
            cat $f 2> /dev/null
        done
        echo "== instances"
        ls instances
        echo "== triggers and filters"
        cat events/*/*/trigger | grep -v '^#'
        cat events/*/*/filter | grep -v '^none$'
    ) > "$O/$1.state"
    ls -A /dev/shm/lastwords-* 2> /dev/null | grep '^.record' >> "$O/$1.state"
}

# record NAME ARGUMENTS...: runs it, and keeps what it says, its status, and the state after it.
record() {
    name=$1
    shift
    lastwords record --instance own -o "$O/$name.dat" "$@" > "$O/$name.said" 2>&1
    echo $? > "$O/$name.status"
    state "$name"
    echo "case $name: status $(cat "$O/$name.status"), $(tail -n 1 "$O/$name.said")"
}

# Waits until a condition holds, a minute at most.
until_so() {
    for n in $(seq 600); do
        "$@" 2> /dev/null && return
        sleep 0.1
    done
}

# Tells that the recorder has set the trigger of its case and records. An instance begins with tracing on and without triggers.
records() { [ "$(cat $OWN/tracing_on)" = 1 ] && grep -q filename $OWN/events/sched/sched_process_exec/trigger; }

entry() { echo "0x$(od -An -t x8 -j 24 -N 8 "$1" | tr -d ' ' | sed 's/^0*//')"; }

state before
# Older kernels have fewer tracers in an instance.
mkdir $T/instances/tracers
cat $T/instances/tracers/available_tracers > $O/tracers
rmdir $T/instances/tracers
graph=function_graph
grep -qw $graph $O/tracers || graph=function
OPENED='p:opened do_sys_openat2 dfd=%di:s32 name=+0(%si):ustring flags=%dx:x64'
RETURNED='r:returned do_sys_openat2 ret=$retval:s64'
record kprobe --kprobe "$OPENED" --kprobe "$RETURNED" -- sh /init peer kprobe opened
record kprobe-stream --stream --kprobe "$OPENED" -- sh /init work kprobe-stream
record uprobe --uprobe "p:started /bin/trace-cmd:$(entry /bin/trace-cmd) sp=%sp:x64" -- sh /init peer uprobe started
record synthetic --synthetic 'lat u64 delta; pid_t pid; char comm[16]' \
    -e sched:sched_waking -R 'hist:keys=pid:ts0=common_timestamp.usecs' \
    -e sched:sched_switch -R 'hist:keys=next_pid:d=common_timestamp.usecs-$ts0:onmatch(sched.sched_waking).lat($d,next_pid,next_comm)' \
    -- sh /init peer synthetic lat
record function -p function --size 256K -- sh /init work function
record graph -p function_graph --size 256K -- sh /init work graph
record graph-events -p function_graph -e sched -e irq --size 256K -- sh /init work graph-events

# Triggers of the kernel.
EXEC=sched:sched_process_exec
record stacktrace -e $EXEC -R 'stacktrace if filename ~ "*trace-cmd"' -- sh /init work stacktrace
record snapshot -e sched -e $EXEC -R 'snapshot:1 if filename ~ "*trace-cmd"' -- sh /init work snapshot
(until_so records; exec lastwords trigger watch own > $O/many.watched 2>&1) &
record many -e $EXEC -R 'snapshot if filename ~ "*trace-cmd"' --limit off \
    --exec 'echo "$LASTWORDS_SESSION $LASTWORDS_SNAPSHOT" >> /t/out/many.ran' -- sh /init many
wait
record window -e $EXEC -R 'snapshot if filename ~ "*trace-cmd"' --before 400ms --after 600ms -- sh /init window
record limit -e $EXEC -R 'snapshot if filename ~ "*trace-cmd"' --limit 1/1000s -- sh /init limit
record no-snapshot -e $EXEC -R 'snapshot if filename == "nothing"' -- sh /init work no-snapshot
(until_so records; work) &
record traceoff -e sched -e $EXEC -R 'traceoff if filename ~ "*trace-cmd"'
wait

# Following an instance takes its events. Another instance has the same events for comparison.
for i in tail twin; do
    mkdir $T/instances/$i
    echo mono > $T/instances/$i/trace_clock
    echo 1 > $T/instances/$i/events/sched/sched_process_exec/enable
done
lastwords report --follow tail > $O/follow.out 2> $O/follow.said &
follower=$!
sleep 3
work
sleep 1
kill -INT $follower
wait $follower
echo $? > $O/follow.status
cat $T/instances/twin/trace > $O/follow.kernel
rmdir $T/instances/tail $T/instances/twin
state follow

# A recorder that is killed.
lastwords record --instance own -o $O/killed.dat -p $graph --kprobe "$OPENED" --synthetic 'lat u64 delta' --size 64K \
    -e $EXEC -R 'snapshot if filename ~ "*trace-cmd"' \
    > $O/killed.said 2>&1 &
recorder=$!
records_or_ended() { records || [ ! -d /proc/$recorder ]; }
until_so records_or_ended
# It does not see the snapshot any more.
kill -STOP $recorder
work
kill -9 $recorder
wait $recorder
echo $? > $O/killed.status
state killed-before
echo 0 > $OWN/tracing_on
cat $OWN/trace > $O/killed.kernel
cat $OWN/snapshot > $O/killed.snapshot.kernel
lastwords restore > $O/restore.said 2>&1
echo $? > $O/restore.status
state killed

# A receiver in the same machine.
lastwords receive --listen vsock:any:5000 --dir $O/received > $O/receive.said 2>&1 &
receiver=$!
until_so [ -s $O/receive.said ]
lastwords record --instance own -o vsock:1:5000 --kprobe "$OPENED" -- sh /init work vsock > $O/vsock.said 2>&1
echo $? > $O/vsock.status
kill -TERM $receiver
wait $receiver
echo $? > $O/receive.status
state vsock

tar c -C /t out > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
while :; do sleep 100; done
