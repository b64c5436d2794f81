-- Which crashes lost events, so that answers about them are unsafe?
-- `lost_events` is null if nobody knows how many were lost. `causes` has the number of gaps by cause.
SELECT c.crash_id, c.signature, c.kind, c.lost_events, l.causes, c.path
FROM crashes c LEFT JOIN (
    SELECT crash_id, concat_ws(', ', array_sort(array_agg(cause || ': ' || CAST(gaps AS STRING)))) AS causes
    FROM (SELECT crash_id, cause, count(*) AS gaps FROM losses WHERE is_loss GROUP BY crash_id, cause) gaps_of_cause
    GROUP BY crash_id
) l ON c.crash_id = l.crash_id
WHERE c.has_losses ORDER BY c.crash_id
