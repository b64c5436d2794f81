#!/bin/busybox sh
# The first program of a guest whose kernel has a trace instance that a reboot does not clear. The word lab.part of the
# kernel's command line says which boot this is: `first` records until the host stops the machine, `second` writes what
# the kernel itself kept of the first boot to the first disk.
. /prelude
T=/sys/kernel/tracing
mount -t tracefs tr $T || fail "tracefs"
I=$T/instances/boot_map
[ -d $I ] || fail "no instance boot_map"
word() { tr ' ' '\n' < /proc/cmdline | sed -n "s/^$1=//p"; }
EVENTS="sched irq timer workqueue watchdog signal block/block_rq_issue block/block_rq_complete module printk"
# A stack trace after these events: the kernel's functions, and those of modules.
STACKS="block/block_rq_issue watchdog/watchdog_ping irq/irq_handler_entry"

# work ROUNDS: processes, timers, requests to a disk and to the watchdog, which are events of modules, and a marker
n=0
work() {
    end=$((n + $1))
    while [ $n -lt $end ]; do
        ls /proc > /dev/null 2>&1
        cat /proc/self/stat /proc/interrupts | sort | wc > /dev/null
        (sleep 0.01 &)
        dd if=/dev/vdb of=/dev/null bs=4096 count=4 skip=$((n * 4)) 2> /dev/null
        echo k >&3
        echo "marker $n" > $I/trace_marker
        n=$((n + 1))
    done
}

# describe FOLDER: the files of a bundle, and what else a judge needs
describe() {
    mkdir -p "$1/events" "$1/btf"
    cat /sys/kernel/btf/vmlinux > "$1/btf/vmlinux"
    # The formats of all events that can be recorded here in one file, with a line before each that names it: the host makes files of them.
    (cd $T/events && systems=$(echo "ftrace $EVENTS" | tr ' ' '\n' | cut -d/ -f1 | sort -u) && cd .. &&
        find $(echo "$systems" | sed 's,^,events/,') -name format | xargs head -v -n 999) > "$1/formats"
    for f in header_page header_event; do cat $T/events/$f > "$1/events/$f"; done
    for f in printk_formats saved_cmdlines; do cat $T/$f > "$1/$f"; done
    cat $T/trace_clock > "$1/trace_clock"
    cat /proc/kallsyms > "$1/kallsyms"
    cat /proc/modules > "$1/modules"
    uname -a > "$1/uname"
    uname -r > "$1/release"
}

case $(word lab.part) in
first)
    exec 3> /dev/watchdog
    (while sleep 5; do echo k >&3; done) &
    echo 0 > $I/tracing_on
    for e in $EVENTS; do echo 1 > "$I/events/$e/enable" || fail "event $e"; done
    for e in $STACKS; do echo stacktrace > "$I/events/$e/trigger" || fail "stack of $e"; done
    echo 1 > $I/tracing_on
    work "$(word lab.rounds)"
    # What this boot itself prints: the same events, with its own symbols, and addresses behind the names in stack traces.
    echo 0 > $I/tracing_on
    echo 1 > $I/options/sym-addr || fail "sym-addr"
    mkdir -p /t/first
    cat $I/trace > /t/first/trace
    describe /t/first
    tar c -C /t first > /dev/vda || fail "the disk"
    sync
    echo 1 > $I/tracing_on
    work 5
    echo "LAB-FIRST-DONE"
    while :; do work 1; done
    ;;
second)
    mkdir -p /t/second
    cat $I/last_boot_info > /t/second/last_boot_info 2> /dev/null
    if [ -x /bin/lastwords ]; then
        mkdir /t/live
        lastwords bundle save -o /tmp/bundle 2> /t/live/bundle.errors || fail "bundle save"
        lastwords report --style fields --bundle /tmp/bundle $I > /t/live/report 2> /t/live/report.errors
        lastwords recover --bundle /tmp/bundle $I --to trace-dat -o /t/live/out > /t/live/recover 2> /t/live/recover.errors
    fi
    echo 0 > $I/options/hash-ptr 2> /dev/null
    # A damaged region can make the kernel print events without end, or search for the next event without end.
    head -n 300000 $I/trace > /t/second/trace &
    reader=$!
    seconds=0
    while kill -0 $reader 2> /dev/null && [ $seconds -lt 200 ]; do
        sleep 1
        seconds=$((seconds + 1))
    done
    kill -0 $reader 2> /dev/null && touch /t/second/hangs
    [ "$(word lab.describe)" = 1 ] && describe /t/second
    dmesg | grep -i -e ring -e trac > /t/second/dmesg
    tar c -C /t $(ls /t) > /dev/vda || fail "the disk"
    sync
    echo "LAB-SECOND-DONE"
    ;;
*) fail "lab.part says neither first nor second" ;;
esac
while :; do sleep 100; done
