#!/bin/busybox sh
# The first program of a guest with LTTng: sessions as the scenario says; what LTTng itself records of them goes to the first disk.
# The kernel's command line has lab.scenario and lab.end. Either the kernel crashes once the truth is there, or the machine is
# stopped and dumped at LAB-PAUSE, goes on, and LTTng then records what it was dumped with.
/bin/busybox mkdir -p /proc /sys /dev /tmp /t /run /root /var /etc /usr/lib
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root LTTNG_UST_REGISTER_TIMEOUT=0
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mount -t tmpfs -o size=80% t /t
mkdir -p /dev/shm
mount -t tmpfs s /dev/shm
ln -s /run /var/run
# Newer libraries look for modules there.
[ -e /usr/lib/modules ] || ln -s /lib/modules /usr/lib/modules
echo "root:x:0:0::/root:/bin/sh" > /etc/passwd
echo "root:x:0:" > /etc/group
dmesg -n 4
ip link set lo up
fail() { echo "LAB-FAILED: $*"; grep -E "^(ERR|WARN|PERROR|Error)" /t/sessiond | tail -5; dmesg | tail -5; while :; do sleep 100; done; }
for module in $(cat /modules); do insmod "/mod/$module.ko" || fail "insmod $module"; done
word() { tr ' ' '\n' < /proc/cmdline | sed -n "s/^$1=//p"; }
SCENARIO=$(word lab.scenario)
END=$(word lab.end)
TRUTH=/t/truth
mkdir -p $TRUTH

lttng-sessiond -vvv --kmod-probes=sched,irq,signal,module,workqueue,printk,statedump > /t/sessiond 2>&1 &
tries=0
while ! lttng -n list > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || fail "no session daemon"
    sleep 1
done
l() { lttng -n "$@" > /t/said 2>&1 || fail "lttng $*: $(tail -2 /t/said | tr "\n" " ")"; }

# channel SESSION NAME OPTIONS
channel() { s=$1 c=$2; shift 2; l enable-channel -k -s "$s" "$@" "$c"; }
# events SESSION CHANNEL OPTIONS
events() { s=$1 c=$2; shift 2; l enable-event -k -s "$s" -c "$c" "$@"; }
# mark NUMBER: a system call whose count is the number
mark() { printf "%0$1d" 0 > /dev/null; }
n=100
# work ROUNDS: processes and system calls; a marker with a number each round
work() {
    last=$((n + $1))
    while [ $n -lt $last ]; do
        ls /proc > /dev/null 2>&1
        cat /proc/self/stat /proc/interrupts | sort | wc > /dev/null
        mark $n
        n=$((n + 1))
    done
}
SCHED="sched_switch,sched_wakeup,sched_process_fork,sched_process_exit,sched_process_exec,irq_*,signal_*,workqueue_*"

case $SCENARIO in
lttng-snapshot)
    l create snap --snapshot -o $TRUTH/snap
    channel snap sched --subbuf-size=16k --num-subbuf=4
    channel snap sys --subbuf-size=16k --num-subbuf=4
    channel snap wide --subbuf-size=256k --num-subbuf=2
    channel snap many --subbuf-size=4k --num-subbuf=32
    events snap sched $SCHED
    events snap sys --syscall --all
    events snap wide "sched_*"
    events snap many --syscall write,read,openat
    l add-context -k -s snap -c many -t pid -t procname -t nice -t tid -t vpid -t ppid
    l start snap
    work 25
    l stop snap
    l snapshot record -s snap ;;
lttng-live)
    l create old --snapshot -o $TRUTH/old
    channel old sched --subbuf-size=8k --num-subbuf=4
    events old sched $SCHED
    l start old
    work 5
    l stop old
    l create fresh --snapshot -o $TRUTH/fresh
    channel fresh sched --subbuf-size=8k --num-subbuf=4
    events fresh sched $SCHED
    l create live --snapshot -o $TRUTH/live
    channel live sched --subbuf-size=64k --num-subbuf=8
    channel live sys --subbuf-size=128k --num-subbuf=8
    events live sched $SCHED
    events live sys --syscall --all
    l add-context -k -s live -c sys -t pid -t procname
    l create full -o $TRUTH/full
    channel full mapped --discard --subbuf-size=4k --num-subbuf=4 --output=mmap
    channel full spliced --discard --subbuf-size=8k --num-subbuf=2 --output=splice
    channel full over --overwrite --subbuf-size=8k --num-subbuf=4 --output=splice
    events full mapped --syscall write,read
    events full spliced "sched_*"
    events full over "sched_switch"
    l start live
    l start full
    work 3
    killall -STOP lttng-consumerd
    work 25
    after() {
        killall -CONT lttng-consumerd
        l stop live
        l snapshot record -s live
        l snapshot record -s old
        l stop full
        l destroy full
    } ;;
lttng-shapes)
    l create gone --snapshot -o /t/gone
    channel gone sched --subbuf-size=8k --num-subbuf=4
    events gone sched $SCHED
    l start gone
    work 2
    l create shapes --snapshot -o $TRUTH/shapes
    channel shapes tiny --subbuf-size=4k --num-subbuf=2
    channel shapes many --subbuf-size=4k --num-subbuf=64
    channel shapes big --subbuf-size=1M --num-subbuf=2
    channel shapes stack --subbuf-size=64k --num-subbuf=4
    channel shapes who --subbuf-size=16k --num-subbuf=4 --output=splice
    events shapes tiny sched_switch
    events shapes many "sched_*,irq_*"
    events shapes big --syscall --all
    events shapes stack sched_process_fork,sched_process_exit
    events shapes who sched_switch
    l add-context -k -s shapes -c stack -t callstack-kernel -t callstack-user
    l add-context -k -s shapes -c who -t prio -t hostname -t pid_ns -t uid -t gid
    # So few events that no sub-buffer is ever closed.
    l create quiet --snapshot -o $TRUTH/quiet
    channel quiet exec --subbuf-size=512k --num-subbuf=2
    events quiet exec sched_process_exec
    l start shapes
    l start quiet
    work 5
    l destroy gone
    work 20
    # Stopping closes what is open: the quiet one goes on.
    l stop shapes
    after() {
        l stop quiet
        l snapshot record -s shapes
        l snapshot record -s quiet
    } ;;
*) fail "no scenario $SCENARIO" ;;
esac

if [ "$END" = paused ]; then
    for f in $(find $TRUTH -type f); do stat -c "%s %n" "$f"; done > /t/sizes
    echo "LAB-MARKER $((n - 1))"
    echo "LAB-PAUSE"
    sleep 2
    cp /t/sizes $TRUTH/sizes
    after
fi
uname -r > $TRUTH/release
lttng -n version | head -1 > $TRUTH/version
echo $((n - 1)) > $TRUTH/last_marker
cp /t/sessiond $TRUTH/
tar c -C /t truth > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
[ "$END" = paused ] && while :; do sleep 100; done
echo 1 > /proc/sys/kernel/sysrq
sleep 0.2
echo c > /proc/sysrq-trigger
fail "no crash"
