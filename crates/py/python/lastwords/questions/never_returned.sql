-- Which locks, spans and system calls had begun at the end, and never returned?
-- The last begin or end of each, by thread, is a begin. Threads that were seen to exit are left out.
WITH steps AS (
    SELECT crash_id, trace, tid, pid, comm, cpu, ts, before_end_ns, fields,
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
        ORDER BY ts DESC, is_begin, own, id NULLS LAST, fields NULLS LAST) AS place
    FROM steps WHERE tid IS NOT NULL
)
SELECT c.signature, l.crash_id, trace, what, nullif(own, '') AS name, id, tid, pid, comm, cpu, before_end_ns, fields
FROM latest l JOIN crashes c ON l.crash_id = c.crash_id
WHERE place = 1 AND is_begin AND own NOT IN ('exit', 'exit_group') AND NOT EXISTS (
    SELECT 1 FROM events e
    WHERE e.name = 'sched_process_exit' AND e.crash_id = l.crash_id
        AND coalesce(e.f_tid, e.f_pid) = l.tid)
ORDER BY c.signature, l.crash_id, what, before_end_ns, tid
