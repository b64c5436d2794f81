#!/bin/busybox sh
# The first program of a guest in which `lastwords record` records user events, beside the kernel's text of the same instance, and
# beside trace-cmd. The commands of `record` are this script too, with the name of a case.
T=/sys/kernel/tracing
O=/t/out
OWN=$T/instances/own

# bursts NUMBER: waits until the program has written so often.
bursts() {
    for n in $(seq 600); do
        [ "$(grep -c burst /t/said)" -ge "$1" ] && return
        sleep 0.1
    done
    echo "LAB-FAILED: no burst $1 of the writer"
}

# The command of a recording. It ends with what the kernel prints of the instance of `record`.
if [ "$1" = work ] || [ "$1" = last ]; then
    before=$(grep -c burst /t/said)
    echo >> /t/in
    bursts $((before + 1))
    # Its events exist as long as they are enabled.
    if [ "$1" = last ]; then
        kill "$(cat /t/writer)"
        for n in $(seq 100); do [ -d "/proc/$(cat /t/writer)" ] && sleep 0.1; done
    fi
    echo 0 > $OWN/tracing_on
    dd if=$OWN/trace of="$O/$2.kernel" bs=64k 2> /dev/null
    exit 0
fi
# The same, recorded by trace-cmd too.
if [ "$1" = peer ]; then
    exec trace-cmd record -q -B peer -e user_events -e user_events_multi -C mono -b 4096 -o "$O/$2.peer.dat" sh /init work "$2" \
        > "$O/$2.peer" 2>&1
fi

. /prelude
export HOME=/t NO_COLOR=1
mount -t tracefs tr $T || fail "tracefs"
mkdir -p /dev/shm $O
mount -t tmpfs s /dev/shm
cd /t || fail "cd"

# record NAME ARGUMENTS...: runs it, and keeps what it says, and its status.
record() {
    name=$1
    shift
    lastwords record --instance own -o "$O/$name.dat" "$@" > "$O/$name.said" 2>&1
    echo $? > "$O/$name.status"
    echo "case $name: status $(cat "$O/$name.status"), $(tail -n 1 "$O/$name.said")"
}

record none -e user_events -- true
mkfifo /t/in
writer < /t/in > /t/said &
writer=$!
echo $writer > /t/writer
exec 3> /t/in
for n in $(seq 600); do grep -q ready /t/said && break; sleep 0.1; done
record events -e user_events -e user_events_multi -- sh /init peer events
record stream --stream -e user_events -- sh /init work stream
record chosen -e user_events:lw_numbers -f 'id & 1' -- sh /init work chosen
record ended -e user_events -- sh /init last ended
cat $T/dynamic_events $T/set_event > $O/left
cp /t/said $O/bursts

tar c -C /t out > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
while :; do sleep 100; done
