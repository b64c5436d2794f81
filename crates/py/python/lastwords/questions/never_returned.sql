-- Which locks, spans and system calls had begun at the end, and never returned?
-- The last begin or end of each, by thread, is a begin. Threads that were seen to exit are left out.
WITH steps AS (
    SELECT crash_id, trace, tid, pid, comm, cpu, ts, before_end_ns, name, fields,
        name IN ('sys_enter', 'contention_begin') OR name LIKE 'syscall_entry_%'
            OR name LIKE 'sys_enter_%' OR name LIKE 'enter %' AS is_begin,
        CASE
            WHEN name LIKE 'sys%' THEN 'system call'
            WHEN name LIKE 'contention_%' THEN 'lock'
            ELSE 'span'
        END AS what,
        regexp_replace(name, '^(syscall_(entry|exit)_|sys_(enter|exit)_?|contention_(begin|end)|(enter|exit) )', '') AS own,
        f_id AS id
    FROM events
    WHERE name IN ('sys_enter', 'sys_exit', 'contention_begin', 'contention_end')
        OR name LIKE 'syscall_entry_%' OR name LIKE 'syscall_exit_%'
        OR name LIKE 'sys_enter_%' OR name LIKE 'sys_exit_%'
        OR (provider = 'span' AND (name LIKE 'enter %' OR name LIKE 'exit %'))
), latest AS (
    SELECT *, row_number() OVER (
        PARTITION BY crash_id, trace, tid, what, CASE WHEN what = 'span' THEN own END
        ORDER BY ts DESC, is_begin) AS place
    FROM steps WHERE tid IS NOT NULL
)
SELECT c.signature, crash_id, trace, what, nullif(own, '') AS name, id, tid, pid, comm, cpu, before_end_ns, fields
FROM latest JOIN crashes c USING (crash_id)
WHERE place = 1 AND is_begin AND own NOT IN ('exit', 'exit_group') AND (crash_id, latest.tid) NOT IN (
    SELECT crash_id, coalesce(f_tid, f_pid) FROM events
    WHERE name = 'sched_process_exit' AND coalesce(f_tid, f_pid) IS NOT NULL)
ORDER BY c.signature, crash_id, what, before_end_ns, tid
