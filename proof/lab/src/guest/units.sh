#!/bin/busybox sh
# The first program of a guest that runs what the units in hooks/systemd run, in their order, with their conditions. The number of the boot
# is kept on the first disk, as is the state of lastwords. What a boot found and did goes to a disk of its own, before the boot records.
. /prelude
T=/sys/kernel/tracing
mount -t tracefs tr $T || fail "tracefs"
export PATH=/usr/bin:/bin HOME=/t NO_COLOR=1
mkdir -p /disk /var/lib/lastwords /run
mount -t ext4 /dev/vda /disk || fail "the disk of the state"
boot=$(($(cat /disk/boot 2> /dev/null || echo 0) + 1))
echo $boot > /disk/boot
PART="boot $boot: "
mkdir -p /disk/state /t/out
mount --bind /disk/state /var/lib/lastwords || fail "the state"
I=$T/instances/boot_map
O=/t/out
# Timers have addresses of functions in their events. Of signal_deliver, trace-cmd prints hexadecimal fields that do not look so.
EVENTS="sched irq signal/signal_generate timer/hrtimer_start timer/hrtimer_expire_entry"

# say NAME COMMAND...: what a command prints, and its status
say() {
    name=$1
    shift
    "$@" > "$O/$name" 2> "$O/$name.errors"
    echo $? > "$O/$name.status"
}

# is_met CONDITION: as systemd.unit(5) says
is_met() {
    path=${1#*=}
    case $1 in
    ConditionPathExistsGlob=*) for found in $path; do [ -e "$found" ] && return 0; done; return 1 ;;
    ConditionPathIsDirectory=*) [ -d "$path" ] ;;
    *) fail "condition $1" ;;
    esac
}

# unit NAME COMMAND CONDITION...
unit() {
    unit=$1
    command=$2
    shift 2
    for condition in "$@"; do
        is_met "$condition" || { echo "not met: $condition" > "$O/$unit.status"; return; }
    done
    say "$unit" $command
}

n=0
# work ROUNDS: processes, timers, and a marker with a number each round
work() {
    end=$((n + $1))
    while [ $n -lt $end ]; do
        ls /proc > /dev/null 2>&1
        cat /proc/self/stat /proc/interrupts | sort | wc > /dev/null
        (sleep 0.01 &)
        echo "boot $boot marker $n" > $I/trace_marker
        n=$((n + 1))
    done
}

uname -r > $O/release
cat /proc/cmdline > $O/cmdline
say doctor lastwords doctor --json
say kernel-args lastwords doctor --kernel-args
if [ -d $I ]; then
    cat $I/last_boot_info > $O/last_boot_info
    echo 0 > $I/options/hash-ptr
    say kernel cat $I/trace
    # The kernel prints events of the last boot by their fields.
    say live lastwords report --style fields $I
fi
. /units
# Without an instance, systemd does not start the unit that saves the last boot: here the script says itself what is missing.
[ -d $I ] || say by-hand /usr/lib/lastwords/save-last-boot
say doctor-after lastwords doctor --json
cp -a /disk/state $O/state
disk=$(echo bcdefgh | cut -c$boot)
tar c -C /t out > /dev/vd$disk || fail "disk $disk"
sync
echo "LAB-SAVED $boot."
# The host stops the machine here.
sleep 3
if [ -d $I ]; then
    for e in $EVENTS; do echo 1 > "$I/events/$e/enable" || fail "event $e"; done
    work "$(tr ' ' '\n' < /proc/cmdline | sed -n 's/^lab.rounds=//p')"
    echo "LAB-RECORDS $boot."
    while :; do work 1; done
fi
echo "LAB-RECORDS $boot."
while :; do sleep 100; done
