-- Auto-approve is in no log: nothing needs a row of it that was revoked or replaced.
DELETE FROM grants WHERE tool IS NULL AND revoked;

-- Every message to a thread looks for its grants; those that were revoked are in no index that it uses.
DROP INDEX grants_of_thread;
CREATE INDEX grants_of_thread ON grants (thread);
CREATE INDEX grants_in_force ON grants (thread, tool) WHERE NOT revoked;
