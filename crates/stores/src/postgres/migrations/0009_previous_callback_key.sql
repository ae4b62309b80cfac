-- The key of callbacks before the last rotation. Its tokens are accepted until it is removed. It is in the same table as the
-- current key: a dump that leaves the data of that table out has neither.
ALTER TABLE callback_key ADD COLUMN previous bytea CHECK (length(previous) = 32);
