#!/bin/busybox sh
# The first program of a guest in which `lastwords record` and trace-cmd record by the same options. The files of both recordings go to the
# first disk, with the settings that the kernel had meanwhile. The commands of the recorders are this script too.
T=/sys/kernel/tracing
O=/t/out
OWN=$T/instances/own

# Prints a file without starting a process, which might be one of those that are recorded.
show() {
    echo "== $1"
    while read -r line; do
        [ "$line" = $$ ] && line=shell
        echo "$line"
    done < "$1"
}

# The command of a recording: it prints the settings of the instance $3 and of all instances, and opens files.
if [ "$1" = work ]; then
    echo $$ > "$O/$2.pid"
    cd "$3" || exit 1
    for f in set_ftrace_filter set_ftrace_notrace set_event_pid set_ftrace_pid options/event-fork options/function-fork options/func_stack_trace; do
        show $f
    done > "$O/$2.settings"
    cd $T || exit 1
    for f in set_graph_function max_graph_depth; do show $f; done > "$O/$2.graph"
    for n in 1 2 3; do show /proc/self/stat; done > /dev/null
    /bin/busybox true
    for n in 1 2 3; do show /proc/version; done > "$O/work"
    exit 0
fi

# The processes of a case of `pair`: the target $$ starts a process on each CPU, each of them one more. It does so between two stops.
member() { echo $$ >> "$O/$1.pids"; }
case $1 in
    target)
        member "$2"
        cd / && kill -STOP $$
        for cpu in 1 2; do taskset $cpu sh /init child "$2"; done
        show /proc/version > /dev/null
        kill -STOP $$
        ;;
    child)
        member "$2"
        for f in /proc/version /no/such /proc/self/stat; do show $f > /dev/null 2>&1; done
        sh /init grandchild "$2"
        exit 0
        ;;
    grandchild)
        member "$2"
        exec probed
        ;;
esac
is_stopped() { grep -q '^State:.T' "/proc/$target/status"; }

# The command of `lastwords record` in `pair`: it records by trace-cmd too. What that records lets the target go on, and waits for it.
if [ "$1" = peer ]; then
    eval "trace-cmd record -q --no-filter -B own.peer -C mono -o $O/$2.peer.dat $THEIRS sh /init go $2" > "$O/$2.peer.said" 2>&1
    # It leaves these changed.
    for o in event-fork function-fork; do echo 0 > "$T/options/$o"; done
    exit 0
fi
if [ "$1" = go ]; then
    for i in $T/instances/*; do
        (
            cd "$i" || exit
            sort set_event | grep -v ':ran$'
            for f in set_event_pid set_ftrace_pid set_ftrace_filter set_ftrace_notrace tracing_cpumask trace_clock current_tracer \
                trace_options; do
                show $f
            done
            grep -v -e '^#' -e '^none$' events/*/*/trigger events/*/*/filter
        ) | sed -e 's/^lastwords_[0-9]*:/hand:/' -e 's/filter:(\(.*\))$/filter:\1/' > "$O/$2.${i##*/}.settings"
    done
    kill -CONT "$target"
    until is_stopped; do sleep 0.05; done
    exit 0
fi

. /prelude
export HOME=/t NO_COLOR=1
mount -t tracefs tr $T || fail "tracefs"
mkdir -p /dev/shm $O
mount -t tmpfs s /dev/shm
cd /t || fail "cd"
uname -r > $O/release

# state NAME: all of the machine's tracing that a recording might leave changed.
state() {
    (
        cd $T || exit
        grep -s '' set_event tracing_on current_tracer trace_clock buffer_size_kb buffer_percent buffer_subbuf_size_kb saved_cmdlines_size \
            dynamic_events kprobe_events uprobe_events synthetic_events set_ftrace_filter set_ftrace_notrace set_ftrace_pid \
            set_ftrace_notrace_pid set_event_pid set_event_notrace_pid set_graph_function set_graph_notrace max_graph_depth tracing_cpumask \
            options/*
        ls instances
        grep -v -e '^#' -e '^none$' events/*/*/trigger events/*/*/filter
    ) > "$O/$1.state"
    ls -A /dev/shm/lastwords-* 2> /dev/null | grep '^.record' >> "$O/$1.state"
}

# both NAME ARGUMENTS...: records with both. trace-cmd has no choice of graphs in an instance.
both() {
    name=$1
    shift
    lastwords record --instance own -o "$O/$name.dat" "$@" -- sh /init work "$name" $OWN > "$O/$name.said" 2>&1
    echo $? > "$O/$name.status"
    state "$name"
    case $name in
        depth*) trace-cmd record -q -C mono -o "$O/$name.peer.dat" "$@" sh /init work "$name.peer" $T ;;
        *) trace-cmd record -q -B peer -C mono -o "$O/$name.peer.dat" "$@" sh /init work "$name.peer" $T/instances/peer ;;
    esac > "$O/$name.peer.said" 2>&1
    trace-cmd reset > /dev/null 2>&1
    # It leaves these changed, and its instance if it fails.
    rmdir $T/instances/peer 2> /dev/null
    echo > $T/set_graph_function
    echo 0 > $T/max_graph_depth
    for o in event-fork function-fork; do echo 0 > "$T/options/$o"; done
    echo 1408 > $T/buffer_size_kb
    echo "case $name: status $(cat "$O/$name.status"), $(tail -n 1 "$O/$name.said")"
}

# pair NAME OURS [THEIRS]: records the same work by both at the same time. THEIRS are the options of trace-cmd, where they differ.
pair() {
    name=$1
    export THEIRS="${3-$2}" target
    sh /init target "$name" &
    target=$!
    until_so is_stopped
    grep -q . $T/dynamic_events && state "$name.before"
    eval "lastwords record --instance own -o $O/$name.dat $2 -- sh /init peer $name" > "$O/$name.said" 2>&1
    echo $? > "$O/$name.status"
    kill -KILL $target
    wait $target
    state "$name"
    echo "case $name: status $(cat "$O/$name.status"), $(tail -n 1 "$O/$name.said")"
}

# wrong NAME ARGUMENTS...: ours alone, which is to fail.
wrong() {
    name=$1
    shift
    lastwords record --instance own -o "$O/$name.dat" "$@" -- true > "$O/$name.said" 2>&1
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

# trace-cmd makes the ring of the top level one of this size, and this its clock.
echo 1408 > $T/buffer_size_kb
echo local > $T/trace_clock
state before
cat $T/README > $O/README
mkdir $OWN
cat $OWN/available_tracers > $O/tracers
rmdir $OWN
# probe KIND OURS [BY_HAND...]: adds an event to those of the pair `probes`, beside one that is defined by hand, in one or more places.
probe() {
    probes="$probes --$1 '$2'"
    shift 2
    for line in "$@"; do echo "$line" >> $T/dynamic_events; done
}

# without LETTER KIND DEFINITION: true if the kernel has no such probes, which an error then says.
without() {
    grep -q " $1\[:\[" $T/README && return 1
    wrong "no-$2" "--$2" "$3"
}

EXEC=sched:sched_process_exec EXIT=sched:sched_process_exit OPEN=syscalls:sys_enter_openat
. /places
LIB=/lib/libprobed.so
probe kprobe 'p:opened do_sys_openat2 dfd=%di:s32 name=+0(%si):ustring' 'p:hand/opened do_sys_openat2 dfd=%di:s32 name=+0(%si):ustring'
probe kprobe 'r:got do_sys_openat2 got=$retval:s64' 'r:hand/got do_sys_openat2 got=$retval:s64'
probe uprobe "p:step $LIB:lab_step number=%di:s32" "p:hand/step $LIB:$STEP number=%di:s32"
probe uprobe "r:stepped $LIB:lab_step result=\$retval:s32" "r:hand/stepped $LIB:$STEP result=\$retval:s32"
probe uprobe "p:done $LIB:lab:done" "p:hand/done $LIB:${DONE% *}" "p:hand/done $LIB:${DONE#* }"
probe uprobe "p:did $LIB::done" "p:hand/did $LIB:${DONE% *}" "p:hand/did $LIB:${DONE#* }"
without f fprobe 'entered vfs_read' || {
    probe fprobe 'entered vfs_read count=$arg3:u64' 'f:hand/entered vfs_read count=$arg3:u64'
    probe fprobe 'left vfs_read%return got=$retval:s64' 'f:hand/left vfs_read%return got=$retval:s64'
}
# Linux 6.12 takes one probe of a tracepoint alone: it is compared with the event of the tracepoint.
without t tprobe 'ran sched_process_exec' || {
    probe tprobe 'ran sched_process_exec old=$arg2:s32'
    echo 't:hand/x sched_process_exit' >> $T/dynamic_events
    wrong second-tprobe --tprobe 'y sched_process_exit'
    echo '-:hand/x' >> $T/dynamic_events
}
without e eprobe 'made sched:sched_process_exec' || probe eprobe 'made sched:sched_process_exec old=$old_pid:s32 file=$filename:string' \
    'e:hand/made sched.sched_process_exec old=$old_pid:s32 file=$filename:string'
pair probes "$probes -e $EXEC" "-e 'hand:*' -e $EXEC"
echo > $T/dynamic_events

# The other instances of trace-cmd have its own name behind theirs.
pair_of() { pair "$1" "$2" "$(echo "$2" | sed -e 's/-B \([a-z]*\)/-B \1.peer -C mono/g')"; }
pair_of options "-M 2 -e $EXEC -e $OPEN -B stacks -T -e $EXEC -e $EXIT -B filter -e $EXEC -f 'filename ~ \"*probed\"' -e $OPEN -f 'dfd != 7' \
    -B trigger -e $EXEC -R 'stacktrace if filename ~ \"*probed\"' -e $OPEN -R 'enable_event:sched:sched_process_exit if common_pid == '\$target \
    -B option -O nooverwrite -O hash-ptr -O nomarkers -O userstacktrace -e $EXEC -e $OPEN \
    -B negated -e 'syscalls:*open*' -e 'syscalls:*exec*' -v -e 'syscalls:sys_exit_*' -e 'syscalls:*_openat'"
pair_of clocks "-C boot -e $EXEC -e $OPEN -B global -C global -e $EXEC -e $OPEN -B counter -C counter -e $EXEC -e $OPEN \
    -B tsc -C x86-tsc -e $EXEC -e $OPEN"
pair_of functions "-p function -l vfs_read -l 'vfs_w*' -B but -p function -l 'vfs_*' -n vfs_read -n 'vfs_w*'"
pair func-stacks '-p function -l vfs_read -O func_stack_trace'
pair pid "-P \$target -e $EXEC -e $EXIT -e $OPEN -p function -l 'vfs_*'"
pair children "-P \$target -c -e $EXEC -e $EXIT -e $OPEN -p function -l 'vfs_*'"
pair levels '-p function_graph -g vfs_read --max-graph-depth 2' '-p function_graph'
state end

both command -p function -l 'vfs_*' -F
both family -p function -l 'vfs_*' -F -c
both graph -p function_graph -l 'vfs_*' -F
both depth -p function_graph -g vfs_read --max-graph-depth 2

wrong no-function -p function -l vfs_read -l no_such_function
wrong no-cpu -e $EXEC -M 100000000
wrong no-clock -e $EXEC -C sundial
wrong no-usdt --uprobe "p:done $LIB:lab:none"
wrong no-graph -p function_graph --max-graph-depth 2 -O func_stack_trace -g vfs_read -g no_such_function
SHARED="-p function_graph -g vfs_read --max-graph-depth 2 -O func_stack_trace -O nofuncgraph-irqs"
is_on() { [ "$(cat $OWN/tracing_on)" = 1 ] && [ "$(cat $OWN/current_tracer)" = function_graph ]; }
for signal in INT TERM KILL; do
    lastwords record --instance own -o $O/$signal.dat $SHARED > $O/$signal.said 2>&1 &
    recorder=$!
    is_on_or_ended() { is_on || [ ! -d /proc/$recorder ]; }
    until_so is_on_or_ended
    state $signal-before
    kill -$signal $recorder
    wait $recorder
    echo $? > $O/$signal.status
    [ $signal = KILL ] && lastwords restore >> $O/$signal.said 2>&1
    state $signal
done

tar c -C /t out > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
while :; do sleep 100; done
