SELECT r.outcome FROM unnest($2::bigint[], $3::bigint[]) AS s (run, epoch)
CROSS JOIN LATERAL release(s.run, NULL, NULL, $1, s.epoch, NULL, $4) AS r
