# shellcheck shell=sh
# Functions of all scripts in this folder. They run as root beside other users, so that nothing is created through a name that another user
# can make, and nothing that another user named is printed on lines of its own.
umask 077
# No command of a script takes a name without a folder for one in the folder where the script was started.
cd / || exit 1

# one_line TEXT: prints TEXT with `?` for each byte that is no printable character of ASCII: line breaks, control characters, and characters
# that reorder a line. Names that others chose are printed by it.
one_line() { printf '%s' "$1" | LC_ALL=C tr -c ' -~' '?'; }

# is_trusted PATH: fails if another user than root and this one owns the file or folder at PATH. A link is judged itself.
is_trusted() {
    owner=$(stat -c %u "$1" 2> /dev/null) || return 1
    [ "$owner" = 0 ] || [ "$owner" = "$(id -u)" ]
}

# refuse PATH WHY: prints why nothing is saved at PATH, and fails.
refuse() {
    printf '%s: %s; nothing is saved there\n' "$(one_line "$1")" "$2" >&2
    return 1
}

# own_folder PATH: makes the folder PATH with the folders above it, or checks the one that is there. It fails where another user could have
# put something: a folder or a link of another user on the way, a folder in which others may exchange names, a last folder that others may write.
own_folder() {
    way='' rest=${1#/}
    [ "$rest" != "$1" ] || refuse "$1" "not an absolute path" || return 1
    while [ -n "$rest" ]; do
        way=$way/${rest%%/*}
        case $rest in
        */*) rest=${rest#*/} ;;
        *) rest='' ;;
        esac
        # mkdir without -p fails where a name is there already, and a link that leads nowhere is one.
        [ -d "$way" ] || mkdir "$way" || return 1
        is_trusted "$way" && is_trusted "$way/." || refuse "$way" "it is of another user" || return 1
        # In a folder with the sticky bit, which ends in t, others cannot exchange what is not theirs.
        case $rest:$(stat -c %A "$way/.") in
        ?*:*[tT]) ;;
        *:?????w* | *:????????w*) refuse "$way" "other users may write there" || return 1 ;;
        esac
    done
    # The folders above the place to which links led are judged too.
    rest=$(cd -P "$way" && pwd) || return 1
    [ "$rest" = "$way" ] || own_folder "$rest"
}
