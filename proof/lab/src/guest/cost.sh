#!/bin/busybox sh
# The first program of a guest in which a program works with no recording, with `lastwords record`, with the same and --stream, and with
# `trace-cmd record`, in turn, for each of some options. The program's times go to the first disk.
T=/sys/kernel/tracing
O=/t/out

# The command of a recording: it lets the program go on, and waits for its times.
if [ "$1" = go ]; then
    kill -CONT "$target"
    for n in $(seq "$REPEATS"); do
        read -r ns
        echo "$2,$3,$ns"
    done < /t/times > /t/time
    exit 0
fi

. /prelude
export HOME=/t NO_COLOR=1
mount -t tracefs tr $T || fail "tracefs"
mkdir -p /dev/shm $O
mount -t tmpfs s /dev/shm
cd /t || fail "cd"
uname -r > $O/release
head -c 2000 /dev/zero > /t/file
mkfifo /t/times
# Neither end waits for the other to be opened.
exec 3<> /t/times

# one ROW WHO RECORDER: measures the program some times. The options in RECORDER may name the $target.
one() {
    cost "$TIMES" /t/file "$REPEATS" > /t/times &
    export target=$!
    until grep -q '^State:.T' "/proc/$target/status"; do sleep 0.05; done
    rm -rf /t/a.dat* /t/time
    eval "$3 sh /init go $1 $2" > /t/said 2>&1 || fail "$1 $2: $(cat /t/said)"
    wait $target
    tee -a $O/times < /t/time
    # trace-cmd leaves it.
    echo > $T/set_graph_function
}

# row NAME OURS [THEIRS]: measures it with nothing and with each recorder. THEIRS are the options of trace-cmd, where they differ.
row() {
    one "$1" nothing ""
    one "$1" ours "lastwords record -o /t/a.dat $2 --"
    one "$1" peer "trace-cmd record -q -C mono -o /t/a.dat ${3-$2}"
}

export TIMES="$(cat /times)" REPEATS="$(cat /repeats)"
echo 'p:hand/opened do_sys_openat2 dfd=%di:s32' > $T/dynamic_events
echo 'f:hand/entered vfs_read count=$arg3:u64' >> $T/dynamic_events
# Until trace-cmd has recorded in the top level, the work takes longer.
one first peer "trace-cmd record -q -C mono -o /t/a.dat -e sched"
rm $O/times
for round in $(cat /rounds); do
    row sched '-e sched'
    row syscalls '-e syscalls'
    one syscalls stream "lastwords record --stream -o /t/a.dat -e syscalls --"
    row function "-p function -l 'vfs_*'"
    row graph '-p function_graph -g vfs_read'
    row pid '-e syscalls -P $target'
    row kprobe "--kprobe 'p:opened do_sys_openat2 dfd=%di:s32'" '-e hand:opened'
    row fprobe "--fprobe 'entered vfs_read count=\$arg3:u64'" '-e hand:entered'
    echo "round $round"
done

tar c -C /t out > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
while :; do sleep 100; done
