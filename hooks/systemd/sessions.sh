# shellcheck shell=sh
# Functions of `collect` and `retain`. Sessions belong to users who may have put anything in their place, so each is read with the rights
# of its owner: the program can read and remove only what its owner can. The owner may also stop that program, trace it, and make it start others.
# So root limits its time, nobody waits until its output is closed, and its output and the time for all sessions of a user are limited.
# shellcheck source=hooks/systemd/common.sh
. "${LASTWORDS_LIBRARY:-/usr/lib/lastwords}/common.sh"
lastwords=${LASTWORDS_PROGRAM:-lastwords}
# shellcheck disable=SC2034 # The scripts that read this file use it.
reports=${LASTWORDS_REPORTS:-/var/lib/lastwords/reports}
places=${LASTWORDS_PLACES:-/dev/shm/lastwords-* /run/user/*/lastwords}
seconds=${LASTWORDS_SECONDS:-120}
# Largest size of the data about a session, in blocks of 512 bytes.
most_data=32768
data=$(mktemp) || exit 1
trap 'rm -f "$data"' EXIT

# as_user UID COMMAND...: runs a command with the rights of a user. The command that limits its time is root's, so that the user cannot stop it.
# With `reader` for UID, it can read all files, and change none: for what root alone may read and others have written.
as_user() {
    user=$1
    shift
    if [ "$user" = "$(id -u)" ] || { [ "$user" = reader ] && [ "$(id -u)" != 0 ]; }; then
        timeout -k 10 "$seconds" "$@"
    elif [ "$user" = reader ]; then
        timeout -k 10 "$seconds" setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
            --inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search "$@"
    else
        group=$(id -g "$user" 2> /dev/null) || group=$user
        timeout -k 10 "$seconds" setpriv --reuid "$user" --regid "$group" --clear-groups --no-new-privs "$@"
    fi
}

# owner_of PLACE: prints the user whose sessions are in a folder. Fails if the path leads through a link. In a folder of a user, all is that
# user's, whatever it claims to be: the user may exchange it, or mount a file system there.
owner_of() (
    cd -P "$1" 2> /dev/null && [ "$PWD" = "$1" ] || exit 1
    of=$(stat -c %u ..) || exit 1
    [ "$of" != 0 ] || of=$(stat -c %u .) || exit 1
    echo "$of"
)

# has_time UID: fails if the sessions of a user have taken LASTWORDS_SECONDS in this run, and says so once.
has_time() {
    spent=0
    eval "spent=\${spent_$1:-0}"
    [ "$spent" != over ] || return 1
    if [ "$1" != "$(id -u)" ] && [ "$spent" -ge "$seconds" ]; then
        echo "the sessions of user $1 take more than $seconds s; the others of this user wait for the next run" >&2
        eval "spent_$1=over"
        return 1
    fi
}

# each_session COMMAND: runs `COMMAND UID FOLDER` for each session of each user. Folders of sessions end in 16 hexadecimal digits.
each_session() {
    for place in $places; do
        owner=$(owner_of "$place") || continue
        for folder in "$place"/*-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]; do
            [ -d "$folder" ] && [ ! -L "$folder" ] || continue
            has_time "$owner" || break
            begun=$(date +%s)
            "$1" "$owner" "$folder"
            eval "spent_$owner=$((spent + $(date +%s) - begun))"
        done
    done
}

# ended UID FOLDER: sets `at` to the time when the session ended (seconds), fails if it still records. A session that cannot be read has
# ended at 0. The names in JSON have no line ends, so that none of them looks like the lines below.
ended() {
    (ulimit -f "$most_data" && as_user "$1" "$lastwords" list --json -- "$2") > "$data" 2> /dev/null || { at=0; return 0; }
    if grep -q '^      "ended": null' "$data"; then return 1; fi
    at=$(sed -n 's/^        "at_ns": "\([0-9]*\)[0-9]\{9\}".*/\1/p' "$data")
    at=${at:-0}
}

# report_of UID FOLDER: prints the name of the session's report. A copy that the core helper made (NAME.dead-PID-...) ends in the digits of the
# session whose memory went with its process, and has a report of its own.
report_of() {
    of=${2%-*}
    case $of in
    *.dead-*) of=${of##*.dead-} ;;
    *) of='' ;;
    esac
    case $of in
    *[!0-9]* | ???????????*) of='' ;;
    esac
    printf '%s-%s%s\n' "$1" "$(printf '%s' "$2" | tail -c 16)" "${of:+.dead-$of}"
}
