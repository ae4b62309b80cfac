-- With the tenant: a claim that passes over one tenant looks at none of its runs.
DROP INDEX runs_woken;
CREATE INDEX runs_woken ON runs (ready_at, row, tenant) WHERE ready = 1;
DROP INDEX runs_by_deadline;
CREATE INDEX runs_by_deadline ON runs (wake_at, row, tenant)
    WHERE wake_at IS NOT NULL AND (ready <> 0 OR status IN ('queued', 'waiting_approval', 'waiting_tool'));
