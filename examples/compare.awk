# Compares what a killed program had reported with what was recovered of it.
#
#     awk -f compare.awk -v batch=N REPORTS TEXT
#
# REPORTS: a line "committed THREAD COUNT" each time recording calls had returned: events 0 to COUNT - 1 of that thread
# are committed. TEXT: `lastwords report --style fields`; lines of other events are passed over.
#
# Fails where a committed event is missing, where one was never recorded, stands twice or out of order. Rings overwrite
# their oldest events: what is recovered of a thread may begin late, but from there on it is whole.

FNR == NR {
    if ($1 == "committed") committed[$2] = $3
    next
}

match($0, / thread=[0-9]+ sequence=[0-9]+/) {
    split(substr($0, RSTART, RLENGTH), part, /[ =]/)
    thread = part[3]
    sequence = part[5]
    if (!(thread in next_of)) first_of[thread] = sequence
    else if (sequence != next_of[thread]) fault("thread " thread ": " sequence " stands where " next_of[thread] " should")
    next_of[thread] = sequence + 1
    events++
}

function fault(text) {
    print "FAULT: " text
    faults++
}

END {
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
