#!/bin/busybox sh
# The first program of two guests that record each other: each has an agent, and is the host of the other in its turn. `lab.role` is
# `early` or `late`, by the order of their boots. Markers that go to and fro between them are the truth of the order.
T=/sys/kernel/tracing
O=/t/out
OWN=$T/instances/own
ROUNDS=100
PATH=/bin

# The instance of the agent.
recorded() { ls -d $T/instances/lastwords-* 2> /dev/null; }

case $1 in
# The host's end of the markers.
ping)
    n=1
    while [ $n -le $ROUNDS ]; do
        echo "round $n begins" > $OWN/trace_marker
        echo $n
        read -r answer || exit 1
        echo "round $n ends" > $OWN/trace_marker
        n=$((n + 1))
    done
    exit 0 ;;
# The guest's end.
pong)
    instance=$(recorded)
    while read -r n; do
        echo "round $n is here" > "$instance/trace_marker"
        echo "$n"
    done
    exit 0 ;;
# What one guest asks of the other.
serve)
    read -r word
    case $word in
    state)
        ls $T/instances
        cat $T/set_event $T/current_tracer $T/tracing_on
        ls -A /dev/shm/lastwords-* 2> /dev/null | grep '^.record' ;;
    said) cat $O/agent.said ;;
    mark) echo "a last word" > "$(recorded)/trace_marker" ;;
    kill) kill -9 "$(cat /t/agent)" ;;
    restore) lastwords restore 2>&1 ;;
    go) echo > /t/go ;;
    esac
    exit 0 ;;
esac

. /prelude
export HOME=/t NO_COLOR=1
mount -t tracefs tr $T || fail "tracefs"
mkdir -p /dev/shm /t/out
mount -t tmpfs s /dev/shm
cd $O || fail "cd"
case $(cat /proc/cmdline) in
*lab.role=early*) role=early own=10.0.0.1 other=10.0.0.2 ;;
*) role=late own=10.0.0.2 other=10.0.0.1 ;;
esac
ip link set lo up
ip link set eth0 up || fail "no network"
ip address add $own/24 dev eth0

# Asks the other guest.
ask() { echo "$1" | nc -w 5 $other 5002; }
# Waits until a condition holds, five minutes at most.
until_so() {
    for n in $(seq 3000); do
        "$@" > /dev/null 2>&1 && return
        sleep 0.1
    done
    echo "not so: $*" >> $O/failed
}
# The agent of the other guest has said a word since the last look.
has_said() { [ "$(ask said | grep -c "$1")" -ge "$2" ]; }
# Nothing of a recording is left in the other guest.
is_clean() { [ "$(ask state)" = "$(cat $O/state.before)" ]; }
agent() {
    lastwords kernel agent --listen tcp:$own:7118 --trust-network >> $O/agent.said 2>&1 &
    echo $! > /t/agent
}
agent
nc -ll -p 5001 -e sh /init pong &
nc -ll -p 5002 -e sh /init serve &
until_so grep -q listening $O/agent.said

GUEST=guest@tcp:$other:7118
# record NAME OPTIONS...: those of the guest come first.
record() {
    name=$1
    shift
    lastwords record --strict --instance own -o $O/$name.dat -e sched:sched_switch -A $GUEST "$@" > $O/$name.said 2>&1
    echo $? > $O/$name.status
    echo "case $name: status $(cat $O/$name.status), $(tail -n 1 $O/$name.said)"
}
as_host() {
    until_so ask state
    ask state > $O/state.before
    record mono -e sched:sched_process_exec -- nc $other 5001 -e sh /init ping
    until_so is_clean
    ask state > $O/mono.state
    lastwords record --strict --instance own -C boot -o $O/boot.dat -e irq -A $GUEST -C mono_raw -p function -l 'vfs_*' --size 256K \
        -- nc $other 5001 -e sh /init ping > $O/boot.said 2>&1
    echo $? > $O/boot.status
    until_so is_clean
    ask state > $O/boot.state
}
# Starts a recording until it is ended, and waits until the guest records.
background() {
    lastwords record --strict --instance own -o $O/$1.dat -e sched:sched_switch -A $GUEST -e sched:sched_process_exec > $O/$1.said 2>&1 &
    recorder=$!
    until_so has_said "recording in the instance" "$2"
    until_so grep -q Ctrl-C $O/$1.said
    ask mark
    sleep 3
}

echo "LAB-GUEST-READY"
if [ $role = early ]; then
    until_so [ -e /t/go ]
    as_host
    tar c -C /t out > /dev/vda || fail "the disk"
    sync
    echo "LAB-TRUTH-DONE"
    while :; do sleep 100; done
fi
as_host
# What an agent refuses.
record trigger -e sched:sched_switch -R traceoff
record unknown -e nothing:like_this
record clock -e sched:sched_switch -C local
record size -e sched:sched_switch --size 65M
until_so is_clean
ask state > $O/refused.state
# An agent records for one host at a time, and a host that dies ends it.
begun=$(ask said | grep -c "recording in the instance")
background killed $((begun + 1))
lastwords record --instance two -o $O/busy.dat -e sched:sched_switch -A $GUEST -e sched:sched_switch > $O/busy.said 2>&1
echo $? > $O/busy.status
kill -9 $recorder
wait $recorder
lastwords restore > $O/restore.said 2>&1
until_so is_clean
ask state > $O/killed.state
# A host that says nothing.
background silent $((begun + 2))
kill -STOP $recorder
until_so has_said "has said nothing for 30 seconds" 1
until_so is_clean
ask state > $O/silent.state
kill -CONT $recorder
sleep 2
kill -INT $recorder
wait $recorder
echo $? > $O/silent.status
# An agent that dies.
background dead $((begun + 3))
ask kill
sleep 3
kill -INT $recorder
wait $recorder
echo $? > $O/dead.status
ask restore > $O/dead.restore
ask state > $O/dead.state
ask go
tar c -C /t out > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
while :; do sleep 100; done
