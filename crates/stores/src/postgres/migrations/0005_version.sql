-- Rises with every accepted item and every commit. A submitted item is taken only where nothing changed since it was judged,
-- and from here on a commit only where its worker has seen all that was accepted.
ALTER TABLE runs RENAME COLUMN change TO version;

-- Whether an accepted item ends its run follows from the item and the state of the run.
ALTER TABLE inbox DROP COLUMN ends_run;
