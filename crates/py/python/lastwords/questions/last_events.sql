-- Which were the last five events of each CPU, by signature?
-- `place` counts back from the end. Events of one time have no order: those of one CPU are taken by
-- name.
SELECT c.signature, crash_id, trace, cpu, place, before_end_ns, comm, tid, provider, newest.name, fields
FROM (
    SELECT crash_id, trace, cpu, before_end_ns, comm, tid, provider, name, fields,
        row_number() OVER (PARTITION BY crash_id, trace, cpu
            ORDER BY ts DESC, name, provider NULLS LAST, tid NULLS LAST, fields NULLS LAST) AS place
    FROM events WHERE cpu IS NOT NULL
) newest JOIN crashes c USING (crash_id)
WHERE place <= 5 ORDER BY c.signature, crash_id, trace, cpu, place
