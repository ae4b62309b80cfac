-- A claim of what presses looks at no other woken run.
CREATE INDEX runs_interrupted ON runs (ready_at, run) WHERE ready = 1 AND node IS NULL AND interrupt_accepted;
