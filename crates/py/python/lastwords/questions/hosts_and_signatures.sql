-- Which hosts repeat a crash, and which signatures spread over hosts?
-- `repeats`: one host has the signature several times. `spreads`: several hosts have it. Of hosts
-- that have it equally often, `most_frequent_host` is the first by name.
WITH of_host AS (
    SELECT signature, host, count(*) AS crashes, min(time) AS first_time, max(time) AS last_time,
        row_number() OVER (PARTITION BY signature
            ORDER BY CASE WHEN host IS NULL THEN 1 ELSE 0 END, count(*) DESC, host) AS place
    FROM crashes WHERE signature IS NOT NULL GROUP BY signature, host
)
SELECT signature, CAST(sum(crashes) AS BIGINT) AS crashes, count(host) AS hosts,
    CASE
        WHEN count(host) > 1 THEN 'spreads'
        WHEN sum(crashes) > 1 AND count(host) = 1 THEN 'repeats'
        WHEN sum(crashes) > 1 THEN 'unknown hosts'
        ELSE 'once'
    END AS pattern,
    max(host) FILTER (WHERE place = 1) AS most_frequent_host,
    min(first_time) AS first_time, max(last_time) AS last_time
FROM of_host GROUP BY signature ORDER BY crashes DESC, signature
