-- What ran on the CPU that crashed?
-- The thread that the last switch on that CPU switched to; without a switch, the thread of the last
-- event there.
WITH own AS (
    SELECT e.crash_id, e.ts, e.before_end_ns, e.comm, e.tid, e.name, e.f_next_comm,
        coalesce(e.f_next_pid, e.f_next_tid) AS next_tid, c.signature, c.crash_cpu,
        row_number() OVER (PARTITION BY e.crash_id
            ORDER BY e.ts DESC, e.name, e.tid NULLS LAST, e.comm NULLS LAST) AS place,
        row_number() OVER (PARTITION BY e.crash_id, e.name
            ORDER BY e.ts DESC, coalesce(e.f_next_pid, e.f_next_tid) NULLS LAST) AS place_of_name
    FROM events e JOIN crashes c ON e.crash_id = c.crash_id AND e.cpu = c.crash_cpu
)
SELECT l.signature, l.crash_id, l.crash_cpu, coalesce(s.f_next_comm, l.comm) AS comm,
    coalesce(s.next_tid, l.tid) AS tid, s.before_end_ns AS since_before_end_ns,
    l.name AS last_event, l.before_end_ns AS last_before_end_ns
FROM own l LEFT JOIN own s
    ON l.crash_id = s.crash_id AND s.name = 'sched_switch' AND s.place_of_name = 1
WHERE l.place = 1 ORDER BY l.signature, l.crash_id
