-- The table that the audit record is in. A restore from a dump creates another table, which is how it is noticed.
CREATE TABLE audit_table (
    singleton integer PRIMARY KEY CHECK (singleton = 1),
    id bigint NOT NULL
);
INSERT INTO audit_table (singleton, id) VALUES (1, 'audit'::regclass::oid::bigint);
