# shellcheck shell=sh
# Functions of `collect` and `retain`. Sessions belong to users who may have put anything in their place, so each is read with the rights
# of its owner: the program can read and remove only what its owner can.
# shellcheck source=hooks/systemd/common.sh
. "${LASTWORDS_LIBRARY:-/usr/lib/lastwords}/common.sh"
lastwords=${LASTWORDS_PROGRAM:-lastwords}
# shellcheck disable=SC2034 # The scripts that read this file use it.
reports=${LASTWORDS_REPORTS:-/var/lib/lastwords/reports}
places=${LASTWORDS_PLACES:-/dev/shm/lastwords-* /run/user/*/lastwords}
seconds=${LASTWORDS_SECONDS:-120}

# as_user UID COMMAND...: runs a command with the rights of a user.
as_user() {
    user=$1
    shift
    if [ "$user" = "$(id -u)" ]; then
        timeout -k 10 "$seconds" "$@"
    else
        group=$(id -g "$user" 2> /dev/null) || group=$user
        setpriv --reuid "$user" --regid "$group" --clear-groups --no-new-privs timeout -k 10 "$seconds" "$@"
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

# each_session COMMAND: runs `COMMAND UID FOLDER` for each session of each user. Folders of sessions end in 16 hexadecimal digits.
each_session() {
    for place in $places; do
        owner=$(owner_of "$place") || continue
        for folder in "$place"/*-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]; do
            [ -d "$folder" ] && [ ! -L "$folder" ] || continue
            "$1" "$owner" "$folder"
        done
    done
}

# ended UID FOLDER: sets `at` to the time when the session ended (seconds), fails if it still records. A session that cannot be read has
# ended at 0. The names in JSON have no line ends, so that none of them looks like the lines below.
ended() {
    data=$(as_user "$1" "$lastwords" list --json "$2" 2> /dev/null) || { at=0; return 0; }
    if printf '%s\n' "$data" | grep -q '^      "ended": null'; then return 1; fi
    at=$(printf '%s\n' "$data" | sed -n 's/^        "at_ns": "\([0-9]*\)[0-9]\{9\}".*/\1/p')
    at=${at:-0}
}

# report_of UID FOLDER: prints the name of the session's report.
report_of() { printf '%s-%s\n' "$1" "$(printf '%s' "$2" | tail -c 16)"; }
