-- Which were the last five events of each CPU, by signature?
-- `place` counts back from the end. Events of one time have no order.
SELECT c.signature, crash_id, trace, cpu, place, before_end_ns, comm, tid, provider, last.name, fields
FROM (
    SELECT *, row_number() OVER (PARTITION BY crash_id, trace, cpu ORDER BY ts DESC) AS place
    FROM events WHERE cpu IS NOT NULL
    QUALIFY place <= 5
) last JOIN crashes c USING (crash_id)
ORDER BY c.signature, crash_id, trace, cpu, place
