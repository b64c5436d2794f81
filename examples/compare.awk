# Compares what a killed program had reported with what was recovered of it.
#
#     awk -f compare.awk -v batch=N -v overwritten=N REPORTS TEXT
#
# REPORTS: a line "committed THREAD COUNT" each time recording calls had returned: events 0 to COUNT - 1 of that thread
# are committed. TEXT: `lastwords report --style fields`; lines of other events are passed over.
#
# Fails where a committed event is missing, where one was never recorded, stands twice or out of order. Rings overwrite
# their oldest events: what is recovered of a thread may begin late, but from there on it is whole. There is a ring for each
# CPU, and a thread may change its CPU: where something was overwritten (`overwritten` is not 0), what is recovered is whole
# from the moment on from which all rings have their events.

FNR == NR {
    if ($1 == "committed") committed[$2] = $3
    next
}

match($0, / thread=[0-9]+ sequence=[0-9]+/) {
    split(substr($0, RSTART, RLENGTH), part, /[ =]/)
    thread = part[3]
    sequence = part[5]
    if (match($0, /\[[0-9]+\]/) && !(substr($0, RSTART, RLENGTH) in begun)) {
        begun[substr($0, RSTART, RLENGTH)]
        if (overwritten + 0) all_begun = $1
    }
    if (thread in next_of && sequence != next_of[thread]) {
        text = "thread " thread ": " sequence " stands where " next_of[thread] " should"
        if (sequence + 0 < next_of[thread] + 0) fault(text)
        else { gap[++gaps] = text; behind[gaps] = last_of[thread] }
    }
    next_of[thread] = sequence + 1
    last_of[thread] = $1
    events++
}

function fault(text) {
    print "FAULT: " text
    faults++
}

END {
    # Times of day, all of one length.
    for (n = 1; n <= gaps; n++)
        if (behind[n] "" >= all_begun "") fault(gap[n])
    for (thread in committed) {
        reported++
        if (!(thread in next_of)) fault("thread " thread ": nothing recovered, " committed[thread] " committed")
        else if (next_of[thread] + 0 < committed[thread] + 0)
            fault("thread " thread ": recovered up to " next_of[thread] - 1 ", committed up to " committed[thread] - 1)
        else if (next_of[thread] + 0 > committed[thread] + batch)
            fault("thread " thread ": " next_of[thread] - 1 " was never recorded")
    }
    if (!reported) fault("no report: the program did not come to record")
    printf "%d events of %d threads recovered, %d faults\n", events, reported, faults
    exit faults > 0
}
