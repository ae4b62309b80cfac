-- The hash chain of each run. Commits from before this version have no hash, and a run with only such commits has no head.
-- Without CHECK: adding one would read the whole table, and the doctor compares every hash anyway.
ALTER TABLE commits ADD COLUMN hash BLOB;
-- The hash of the last commit, and the first event of the first commit that has one.
ALTER TABLE runs ADD COLUMN chain_head BLOB;
ALTER TABLE runs ADD COLUMN chain_from INTEGER;

-- Every run with a larger number has a chain from its first event on.
CREATE TABLE chain_introduction (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last_run INTEGER NOT NULL
) STRICT;
INSERT INTO chain_introduction (only, last_run) SELECT 1, coalesce(max(row), 0) FROM runs;
