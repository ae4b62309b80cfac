-- The key of callbacks before the last rotation. Its tokens are accepted until it is removed.
CREATE TABLE previous_callback_key (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    key BLOB NOT NULL CHECK (length(key) = 32)
) STRICT;
