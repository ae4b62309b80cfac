-- The audit record. A row is written in the transaction that makes the change. Its content is `body`; the columns beside
-- it are for searching. It is sealed later: it gets the next number and hash of its tenant's chain, and never changes
-- again.
CREATE TABLE audit (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    at INTEGER NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    body TEXT NOT NULL,
    seq INTEGER CHECK (seq > 0),
    hash BLOB CHECK (length(hash) = 32),
    CHECK ((seq IS NULL) = (hash IS NULL))
) STRICT;

CREATE UNIQUE INDEX audit_sealed ON audit (tenant, seq) WHERE seq IS NOT NULL;
CREATE INDEX audit_unsealed ON audit (tenant, place) WHERE seq IS NULL;

-- The chain of each tenant: its end, and the end of what was pruned.
CREATE TABLE audit_chains (
    tenant TEXT PRIMARY KEY NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    pruned_seq INTEGER NOT NULL,
    pruned_hash BLOB NOT NULL CHECK (length(pruned_hash) = 32)
) STRICT;
