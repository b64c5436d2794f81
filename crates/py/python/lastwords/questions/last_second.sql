-- Which events are over-represented in the last second of a crash?
-- `ratio` compares the rate of the last second with the rate before. It is null for an event that
-- was never there before.
WITH spans AS (
    SELECT crash_id, greatest(max(before_end_ns) - 1000000000, 0) / 1e9 AS seconds_before
    FROM events GROUP BY crash_id
), counts AS (
    SELECT crash_id, provider, name,
        count(*) FILTER (WHERE before_end_ns <= 1000000000) AS last_second,
        count(*) FILTER (WHERE before_end_ns > 1000000000) AS before
    FROM events WHERE before_end_ns IS NOT NULL GROUP BY crash_id, provider, name
)
SELECT c.signature, crash_id, provider, counts.name, last_second, before, seconds_before,
    last_second / nullif(before / nullif(seconds_before, 0), 0) AS ratio
FROM counts JOIN spans USING (crash_id) JOIN crashes c USING (crash_id)
WHERE last_second > 0
ORDER BY ratio DESC NULLS LAST, last_second DESC, crash_id, counts.name
