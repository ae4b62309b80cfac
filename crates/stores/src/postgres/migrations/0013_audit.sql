-- The audit record. A row is written in the transaction that makes the change. Its content is `body`; the columns beside
-- it are for searching. It is sealed later: it gets the next number and hash of its tenant's chain, and never changes
-- again.
CREATE TABLE audit (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    action text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    body text COLLATE "C" NOT NULL,
    seq bigint CHECK (seq > 0),
    hash bytea CHECK (length(hash) = 32),
    CHECK ((seq IS NULL) = (hash IS NULL))
);

CREATE UNIQUE INDEX audit_sealed ON audit (tenant, seq) WHERE seq IS NOT NULL;
CREATE INDEX audit_unsealed ON audit (tenant, place) WHERE seq IS NULL;

-- The chain of each tenant: its end, and the end of what was pruned. A node that seals locks the row.
CREATE TABLE audit_chains (
    tenant text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    hash bytea NOT NULL CHECK (length(hash) = 32),
    pruned_seq bigint NOT NULL,
    pruned_hash bytea NOT NULL CHECK (length(pruned_hash) = 32)
);
