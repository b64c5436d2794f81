-- Which hosts repeat a crash, and which signatures spread over hosts?
-- `repeats`: one host has the signature several times. `spreads`: several hosts have it.
SELECT signature, count(*) AS crashes, count(DISTINCT host) AS hosts,
    CASE
        WHEN count(DISTINCT host) > 1 THEN 'spreads'
        WHEN count(*) > 1 AND count(DISTINCT host) = 1 THEN 'repeats'
        WHEN count(*) > 1 THEN 'unknown hosts'
        ELSE 'once'
    END AS pattern,
    mode(host) AS most_frequent_host, min(time) AS first_time, max(time) AS last_time
FROM crashes WHERE signature IS NOT NULL GROUP BY signature ORDER BY crashes DESC, signature
