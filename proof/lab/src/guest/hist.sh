#!/bin/busybox sh
# The first program of a guest in which triggers of `lastwords record` make histograms. The work of a recording has numbers that are known.
# What the kernel prints of each histogram goes to the first disk together with what `lastwords` saves and shows.
T=/sys/kernel/tracing
O=/t/out
OWN=$T/instances/own

# Prints what the kernel has of the events after $1, and what `lastwords` shows of all.
look() {
    name=$1
    shift
    for event in "$@"; do
        echo "# instance: own"
        echo "# event: $event"
        cat "$OWN/events/$(echo "$event" | tr : /)/hist"
        echo
    done > "$O/$name.kernel"
    lastwords kernel hist own > "$O/$name.live" 2> "$O/$name.live.said"
    lastwords kernel hist own --json > "$O/$name.json" 2> "$O/$name.json.said"
}

# The command of a recording: it makes known numbers of signals, writes and programs, and looks at the histograms of the events after $2.
if [ "$1" = work ]; then
    n=0
    while [ $n -lt 13 ]; do
        kill -0 1
        [ $n -lt 7 ] && kill -CONT 1
        n=$((n + 1))
    done
    /bin/writer if=/dev/zero of=/dev/null bs=4096 count=10 2> /dev/null
    /bin/writer if=/dev/zero of=/dev/null bs=100 count=5 2> /dev/null
    for n in 1 2 2 3 3 3; do "/t/n$n" > /dev/null 2>&1; done
    n=0
    while [ $n -lt 400 ]; do
        kill -0 $((100000 + n)) 2> /dev/null
        n=$((n + 1))
    done
    shift
    look "$@"
    exit 0
fi

. /prelude
export HOME=/t NO_COLOR=1
mount -t tracefs tr $T || fail "tracefs"
mkdir -p /dev/shm /t/out
mount -t tmpfs s /dev/shm
cd /t || fail "cd"
uname -r > $O/release
# Programs whose starts and writes are counted.
for n in 1 2 3; do printf '#!/bin/sh\nexit 0\n' > /t/n$n; chmod +x /t/n$n; done
printf '#!/bin/sh\nexec dd "$@"\n' > /bin/writer
chmod +x /bin/writer

# state NAME: all of the machine's tracing that a recording might leave changed.
state() {
    (
        cd $T || exit
        for f in set_event dynamic_events synthetic_events tracing_on current_tracer trace_clock; do
            echo "== $f"
            cat $f 2> /dev/null
        done
        echo "== instances"
        ls instances
        echo "== triggers"
        cat events/*/*/trigger | grep -v '^#'
    ) > "$O/$1.state"
    ls -A /dev/shm/lastwords-* 2> /dev/null | grep '^.record' >> "$O/$1.state"
}

# record NAME EVENTS ARGUMENTS...: runs it, and keeps what it says, its status, and the state after it.
record() {
    name=$1
    events=$2
    shift 2
    lastwords record --instance own -o "$O/$name.dat" "$@" -- sh /init work "$name" $events > "$O/$name.said" 2>&1
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

KILL=syscalls:sys_enter_kill
WRITE=syscalls:sys_enter_write
EXEC=sched:sched_process_exec
KMALLOC=kmem:kmem_cache_alloc
WRITER='comm == "dd"'
state before
record numbers $KILL -v -e $KILL -R 'hist:keys=sig,pid.hex:sort=sig if pid == 1'
record texts $EXEC -v -e $EXEC -R 'hist:keys=filename if filename ~ "/t/n*"'
record sizes $WRITE -v -e $WRITE -R "hist:keys=count.log2:vals=count if fd == 1 && $WRITER" \
    -R "hist:keys=count.buckets=100:vals=hitcount,count.hex if fd == 1 && $WRITER"
record names raw_syscalls:sys_enter -v -e raw_syscalls:sys_enter -R "hist:keys=id.syscall,common_pid.execname if $WRITER"
record symbols $KMALLOC -v -e $KMALLOC -R "hist:keys=call_site.sym:vals=bytes_req if $WRITER" \
    -R "hist:keys=call_site.sym-offset,bytes_req:vals=bytes_alloc if $WRITER"
record stacks $KMALLOC -v -e $KMALLOC -R "hist:keys=stacktrace if $WRITER"
record dropped $KILL -v -e $KILL -R 'hist:keys=pid:size=128 if pid >= 100000'
record named "syscalls:sys_enter_read $WRITE" -v -e syscalls:sys_enter_read -R "hist:name=fds:keys=fd if $WRITER" \
    -e $WRITE -R "hist:name=fds:keys=fd if $WRITER"
record both $KILL -e $KILL -f 'pid == 1' -R 'hist:keys=sig if pid == 1'
record onmatch "sched:sched_switch sched:sched_waking" --synthetic 'lat u64 delta; pid_t pid' -e sched:sched_waking \
    -R 'hist:keys=pid:ts0=common_timestamp.usecs' \
    -e sched:sched_switch -R 'hist:keys=next_pid:d=common_timestamp.usecs-$ts0:onmatch(sched.sched_waking).lat($d,next_pid)'
record wrong-key $KILL -v -e $KILL -R 'hist:keys=nothing'
record wrong-sort $KILL -v -e $KILL -R 'hist:keys=pid:sort=nothing'

# A recorder that is killed: `restore` saves its histograms.
lastwords record --instance own -o $O/killed.dat -v -e $KILL -R 'hist:keys=sig if pid == 1' > $O/killed.said 2>&1 &
recorder=$!
counts_or_ended() { grep -q '^hist:' $OWN/events/syscalls/sys_enter_kill/trigger || [ ! -d /proc/$recorder ]; }
until_so counts_or_ended
kill -STOP 1
kill -9 $recorder
wait $recorder
echo $? > $O/killed.status
look killed $KILL
lastwords restore > $O/restore.said 2>&1
echo $? > $O/restore.status
state killed

tar c -C /t out > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
while :; do sleep 100; done
