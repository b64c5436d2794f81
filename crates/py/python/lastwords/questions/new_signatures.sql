-- Which signatures are new in a release?
-- The release of a signature is that of its first crash. `is_new` is true if an earlier crash, of
-- any signature, had another release: then the signature came with this one, or later.
WITH first AS (
    SELECT signature, arg_min(coalesce(release, program), ts) AS first_release,
        min(ts) AS first_ts, min(time) AS first_time,
        count(*) AS crashes, count(DISTINCT host) AS hosts
    FROM crashes WHERE signature IS NOT NULL GROUP BY signature
), begin AS (
    SELECT coalesce(release, program) AS release, min(ts) AS begin_ts FROM crashes GROUP BY ALL
)
SELECT first_release, signature, crashes, hosts, first_time,
    EXISTS (SELECT 1 FROM begin other
        WHERE other.release <> first_release AND other.begin_ts < first_ts) AS is_new
FROM first ORDER BY first_ts, signature
