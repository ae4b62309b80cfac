-- The last record of each tenant that a sink has taken.
CREATE TABLE audit_sinks (
    sink text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    seq bigint NOT NULL CHECK (seq > 0),
    PRIMARY KEY (sink, tenant)
);
