UPDATE suspensions
SET status = ?4, decided_at = ?5, decided_by = ?6, reason = ?7, note = ?8, closed_seq = ?9
WHERE tenant = ?1 AND id = ?2 AND run = ?3 AND status <> 'pending'
