-- Which interrupts had begun at the end, and not ended?
-- The last begin or end of each interrupt on each CPU is a begin. Where events were lost, its end may
-- be among them (see unsafe_answers).
WITH steps AS (
    SELECT crash_id, trace, cpu, ts, before_end_ns, comm, tid, fields, name LIKE '%_entry' AS is_begin,
        regexp_replace(name, '_(entry|exit)$', '') AS interrupt, coalesce(f_irq, f_vec) AS number
    FROM events
    WHERE name IN ('irq_handler_entry', 'irq_handler_exit', 'softirq_entry', 'softirq_exit',
            'irq_softirq_entry', 'irq_softirq_exit', 'tasklet_entry', 'tasklet_exit')
        OR provider = 'irq_vectors'
), latest AS (
    SELECT *, row_number() OVER (
        PARTITION BY crash_id, trace, cpu, interrupt, number
        ORDER BY ts DESC, is_begin, fields NULLS LAST) AS place
    FROM steps
)
SELECT c.signature, crash_id, trace, cpu, interrupt, number, before_end_ns, comm, tid, fields
FROM latest JOIN crashes c USING (crash_id)
WHERE place = 1 AND is_begin ORDER BY c.signature, crash_id, trace, cpu, before_end_ns
