-- The table that the audit record is in. A restore from a dump creates another table, which is how it is noticed.
CREATE TABLE audit_table (
    only integer PRIMARY KEY CHECK (only = 1),
    id bigint NOT NULL
);
INSERT INTO audit_table (only, id) VALUES (1, 'audit'::regclass::oid::bigint);
