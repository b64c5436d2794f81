#!/bin/busybox sh
# The first program of a guest in which `lastwords record` and trace-cmd choose functions and processes by the same options. The files of
# both recordings go to the first disk, with the settings that the kernel had meanwhile. The commands of the recorders are this script too.
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
        for f in set_event tracing_on current_tracer set_ftrace_filter set_ftrace_notrace set_ftrace_pid set_event_pid set_graph_function \
            set_graph_notrace max_graph_depth tracing_cpumask options/*; do
            echo "== $f"
            cat $f 2> /dev/null
        done
        echo "== instances"
        ls instances
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
    # It leaves these changed.
    echo > $T/set_graph_function
    echo 0 > $T/max_graph_depth
    for o in event-fork function-fork; do echo 0 > "$T/options/$o"; done
    echo 1408 > $T/buffer_size_kb
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

state before
both only -p function -l vfs_read -l 'vfs_w*'
both but -p function -l 'vfs_*' -n vfs_read -n 'vfs_w*'
both command -p function -l 'vfs_*' -F
both family -p function -l 'vfs_*' -F -c
both pid -p function -l 'vfs_*' -P 1
both stacks -p function -l vfs_read -O func_stack_trace
both graph -p function_graph -l 'vfs_*' -F
both depth -p function_graph -g vfs_read --max-graph-depth 2

wrong no-function -p function -l vfs_read -l no_such_function
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
