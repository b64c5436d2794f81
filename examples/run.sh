#!/usr/bin/env bash
# Runs an example, kills it, recovers, compares: examples/run.sh NAME...   (rust-app, tokio-app, c-app, namespace; none: all)
#
# Each example records numbered events, and prints "committed THREAD COUNT" whenever recording calls have returned. It is
# killed with SIGKILL at a random moment; what `lastwords` then recovers is compared with what was printed. PROFILE names
# cargo's profile: dev (the default) or release.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
profile=${PROFILE:-dev}
built=$target/${profile/#dev/debug}
lastwords=$built/lastwords
batch=100

# Starts a program in the background, kills it after a random time from 0.2 to 1.2 s. Its output is in $work/reports.
run_and_kill() {
    "$@" >"$work/reports" 2>"$work/errors" &
    local pid=$!
    for _ in $(seq 200); do
        if [ -s "$work/reports" ] || ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.05
    done
    sleep "$(awk -v seed="$RANDOM" 'BEGIN { srand(seed); print 0.2 + rand() }')"
    "$killer" "$pid"
    wait "$pid" 2>/dev/null || true
}

kill_it() { kill -9 "$1"; }
abort_it() { kill -ABRT "$1"; }

# Recovers the session $1 as text and as CTF, compares, and sees that the comparison can fail.
recover_and_compare() {
    "$lastwords" report --style fields "$1" >"$work/text" 2>"$work/evidence"
    local overwritten
    # grep ends with 1 where there is none; another status is a fault.
    overwritten=$(grep -c overwritten "$work/evidence") || [ $? -eq 1 ]
    if ! awk -v batch="$batch" -v overwritten="$overwritten" -f examples/compare.awk "$work/reports" "$work/text"; then
        cat "$work/evidence" "$work/errors"
        return 1
    fi
    # The newest events taken away: the comparison has to see it.
    head -n -$((batch * 8)) "$work/text" >"$work/cut"
    if awk -v batch="$batch" -v overwritten="$overwritten" -f examples/compare.awk "$work/reports" "$work/cut" >/dev/null; then
        echo "FAULT: the comparison passes a text that lacks its newest events"
        return 1
    fi
    "$lastwords" recover "$1" -o "$work/out" 2>/dev/null
    babeltrace2 "$work/out" >"$work/babeltrace" 2>"$work/warnings"
    if [ -s "$work/warnings" ]; then
        echo "FAULT: babeltrace2 warns:"
        head "$work/warnings"
        return 1
    fi
    echo "babeltrace2 reads $(wc -l <"$work/babeltrace") events without a warning"
    # Text has once what several channels have; of channels that are asked for it has all, as CTF does.
    "$lastwords" report --channel '*' "$1" >"$work/all" 2>/dev/null
    [ "$(wc -l <"$work/babeltrace")" -eq "$(wc -l <"$work/all")" ]
}

rust_app() {
    run_and_kill "$built/rust-app"
    recover_and_compare rust-app
}

tokio_app() {
    run_and_kill "$built/tokio-app"
    recover_and_compare tokio-app
    # The spans that were open, and the one warning of the very start.
    grep -q "spans were open" "$work/evidence"
    grep -q "the only warning" "$work/text"
    # Threads have the names that the runtime gave them.
    grep -qE " tokio-[a-z-]*worker-[0-9]+ " "$work/text"
}

c_app() {
    cc -std=gnu11 -O2 -Wall -Wextra -Werror -I crates/capi/include examples/c-app/main.c \
        "$built/liblastwords_c.a" -lpthread -ldl -lm -o "$work/c-app"
    run_and_kill "$work/c-app"
    recover_and_compare c-app
    # Once more, by a signal that its handlers record, with the modules of the backtrace.
    "$lastwords" destroy --left-over >/dev/null
    killer=abort_it
    run_and_kill "$work/c-app"
    "$lastwords" report c-app --last 1 >/dev/null 2>"$work/cause"
    grep -q "cause of death: SIGABRT in thread " "$work/cause"
    grep -q "  main$" "$work/cause"
    "$lastwords" report c-app --last 1 --no-symbols >/dev/null 2>"$work/cause"
    grep -q "$work/c-app+0x" "$work/cause"
}

# The program is process 1 of a pid namespace with mounts of its own, as in a container; it is recovered from outside.
namespace() {
    killer=kill_child
    run_and_kill unshare --pid --mount --fork --kill-child "$built/rust-app"
    recover_and_compare rust-app
}

# Kills the only child of $1: the program, not `unshare` around it.
kill_child() { kill -9 "$(cat "/proc/$1/task/$1/children")"; }

for tool in babeltrace2 unshare cc awk; do
    if ! command -v "$tool" >/dev/null; then
        echo "$tool is not here: cargo xtask setup" >&2
        exit 1
    fi
done
# With the whole workspace, dependencies have the features that `cargo test --workspace` gave them.
cargo build --quiet --profile "$profile" --workspace --lib --bin lastwords --bin rust-app --bin tokio-app
for name in "${@:-rust-app tokio-app c-app namespace}"; do
    for example in $name; do
        work=$(mktemp -d)
        export LASTWORDS_DIR=$work/sessions
        killer=kill_it
        echo "== $example"
        # Not as a condition: bash would then pass over what fails inside.
        set +e
        (set -e && "${example//-/_}")
        status=$?
        set -e
        if [ "$status" -ne 0 ]; then
            echo "$example: FAILED (kept: $work)"
            exit 1
        fi
        rm -rf "$work"
        echo "$example: passed"
    done
done
