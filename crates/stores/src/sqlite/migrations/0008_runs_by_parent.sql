-- The runs that a run has delegated to: for the approvals of a tree of runs, and for admission to a thread.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
