-- Raised with every accepted item and every commit: a commit of a worker that has not seen the last one is refused.
ALTER TABLE runs ADD COLUMN version INTEGER NOT NULL DEFAULT 0 CHECK (version >= 0);

-- Whether an accepted item ends its run follows from the item and the state of the run.
DROP INDEX inbox_ending;
ALTER TABLE inbox DROP COLUMN ends_run;
