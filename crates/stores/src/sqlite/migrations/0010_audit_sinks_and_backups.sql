-- The last record of each tenant that a sink has taken.
CREATE TABLE audit_sinks (
    sink TEXT NOT NULL,
    tenant TEXT NOT NULL,
    seq INTEGER NOT NULL CHECK (seq > 0),
    PRIMARY KEY (sink, tenant)
) STRICT, WITHOUT ROWID;

-- In a backup: when it was taken. The first process that opens the backup as a store records that, and removes the row.
CREATE TABLE backup_mark (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    taken_at INTEGER NOT NULL
) STRICT;
