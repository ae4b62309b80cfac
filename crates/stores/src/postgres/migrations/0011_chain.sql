-- The hash chain of each run. Commits from before this version have no hash, and a run with only such commits has no head.
-- Columns without a default: no row is read or written again, however large the tables are.
ALTER TABLE commits ADD COLUMN hash bytea;
-- The hash of the last commit, and the first event of the first commit that has one.
ALTER TABLE runs ADD COLUMN chain_head bytea, ADD COLUMN chain_from bigint;

-- Every run with a larger number has a chain from its first event on.
CREATE TABLE chain_introduction (
    the_only boolean PRIMARY KEY CHECK (the_only),
    last_run bigint NOT NULL
);
INSERT INTO chain_introduction (the_only, last_run) SELECT true, coalesce(max(run), 0) FROM runs;
