-- Which errnos rose in the ten seconds before an OOM kill?
-- `ratio` compares the rate of these seconds with the rate before; null if there were none before.
WITH victims AS (
    SELECT crash_id, min(ts) AS kill_ts FROM events WHERE name = 'mark_victim' GROUP BY crash_id
), kills AS (
    SELECT crash_id, kill_ts FROM victims
    UNION ALL
    SELECT crash_id, ts FROM crashes
    WHERE cause = 'out-of-memory' AND crash_id NOT IN (SELECT crash_id FROM victims)
), failures AS (
    SELECT e.crash_id, -e.f_ret AS errno, k.kill_ts - e.ts AS before_ns
    FROM events e JOIN kills k ON e.crash_id = k.crash_id AND e.ts <= k.kill_ts
    WHERE e.f_ret BETWEEN -4095 AND -1
), spans AS (
    SELECT e.crash_id, greatest(max(k.kill_ts - e.ts) / 1e9 - 10, 0) AS seconds_before
    FROM events e JOIN kills k ON e.crash_id = k.crash_id AND e.ts <= k.kill_ts GROUP BY e.crash_id
), counts AS (
    SELECT crash_id, errno, count(*) FILTER (WHERE before_ns <= 10000000000) AS last_10_s,
        count(*) FILTER (WHERE before_ns > 10000000000) AS before
    FROM failures GROUP BY crash_id, errno
)
SELECT c.signature, crash_id, errno, last_10_s, before, seconds_before,
    (last_10_s / 10) / nullif(before / nullif(seconds_before, 0), 0) AS ratio
FROM counts JOIN spans USING (crash_id) JOIN crashes c USING (crash_id)
WHERE last_10_s > 0 ORDER BY ratio DESC NULLS LAST, last_10_s DESC, crash_id, errno
