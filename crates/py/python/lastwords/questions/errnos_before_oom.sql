-- Which errnos rose in the ten seconds before an OOM kill?
-- `ratio` compares the rate of these seconds with the rate before; null if there were none before.
WITH kills AS (
    SELECT crash_id, min(ts) AS kill_ts FROM events
    WHERE name = 'mark_victim'
    GROUP BY crash_id
    UNION ALL
    SELECT crash_id, ts FROM crashes WHERE cause = 'out-of-memory' AND crash_id NOT IN (
        SELECT crash_id FROM events WHERE name = 'mark_victim')
), failures AS (
    SELECT e.crash_id, -e.f_ret AS errno, kill_ts - e.ts AS before_ns
    FROM events e JOIN kills k ON e.crash_id = k.crash_id AND e.ts <= k.kill_ts
    WHERE e.f_ret BETWEEN -4095 AND -1
), spans AS (
    SELECT e.crash_id, greatest(max(kill_ts - e.ts) / 1e9 - 10, 0) AS seconds_before
    FROM events e JOIN kills k ON e.crash_id = k.crash_id AND e.ts <= k.kill_ts GROUP BY e.crash_id
)
SELECT c.signature, crash_id, errno, count(*) FILTER (before_ns <= 10_000_000_000) AS last_10_s,
    count(*) FILTER (before_ns > 10_000_000_000) AS before, any_value(seconds_before) AS seconds_before,
    (count(*) FILTER (before_ns <= 10_000_000_000) / 10)
        / nullif(count(*) FILTER (before_ns > 10_000_000_000) / nullif(any_value(seconds_before), 0), 0) AS ratio
FROM failures JOIN spans USING (crash_id) JOIN crashes c USING (crash_id)
GROUP BY c.signature, crash_id, errno
HAVING last_10_s > 0 ORDER BY ratio DESC NULLS LAST, last_10_s DESC, crash_id, errno
