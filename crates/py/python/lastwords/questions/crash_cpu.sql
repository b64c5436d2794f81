-- What ran on the CPU that crashed?
-- The thread that the last switch on that CPU switched to; without a switch, the thread of the last
-- event there.
WITH own AS (
    SELECT e.*, c.signature, c.crash_cpu
    FROM events e JOIN crashes c ON e.crash_id = c.crash_id AND e.cpu = c.crash_cpu
), switches AS (
    SELECT crash_id, arg_max(f_next_comm, ts) AS comm,
        arg_max(coalesce(f_next_pid, f_next_tid), ts) AS tid, min(before_end_ns) AS before_end_ns
    FROM own WHERE name = 'sched_switch' GROUP BY crash_id
), latest AS (
    SELECT crash_id, any_value(signature) AS signature, any_value(crash_cpu) AS crash_cpu,
        arg_max(comm, ts) AS comm, arg_max(tid, ts) AS tid, arg_max(name, ts) AS last_event,
        min(before_end_ns) AS before_end_ns
    FROM own GROUP BY crash_id
)
SELECT signature, crash_id, crash_cpu, coalesce(s.comm, l.comm) AS comm, coalesce(s.tid, l.tid) AS tid,
    s.before_end_ns AS since_before_end_ns, last_event, l.before_end_ns AS last_before_end_ns
FROM latest l LEFT JOIN switches s USING (crash_id) ORDER BY signature, crash_id
