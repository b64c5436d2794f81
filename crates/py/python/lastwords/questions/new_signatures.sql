-- Which signatures are new in a release?
-- The release of a signature is that of its first crash. `is_new` is true if an earlier crash, of
-- any signature, had another release: then the signature came with this one, or later.
WITH dated AS (
    SELECT signature, coalesce(release, program) AS release, ts, time, host,
        row_number() OVER (PARTITION BY signature
            ORDER BY CASE WHEN coalesce(release, program) IS NULL THEN 1 ELSE 0 END,
                ts NULLS LAST, coalesce(release, program)) AS place
    FROM crashes
), signatures AS (
    SELECT signature, max(release) FILTER (WHERE place = 1) AS first_release,
        min(ts) AS first_ts, min(time) AS first_time,
        count(*) AS crashes, count(DISTINCT host) AS hosts
    FROM dated WHERE signature IS NOT NULL GROUP BY signature
), releases AS (
    SELECT release, min(ts) AS begin_ts FROM dated GROUP BY release
)
SELECT first_release, signature, crashes, hosts, first_time,
    EXISTS (SELECT 1 FROM releases other
        WHERE other.release <> first_release AND other.begin_ts < first_ts) AS is_new
FROM signatures ORDER BY first_ts, signature
