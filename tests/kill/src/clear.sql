-- Empties the tables of a schema whose sessions carry its name.
DO $$
DECLARE
    emptied regclass;
BEGIN
    -- A process that was killed may have left a statement that is still under way.
    PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'SCHEMA';
    PERFORM pg_stat_clear_snapshot();
    IF EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'SCHEMA') THEN
        RAISE EXCEPTION 'SCHEMA is still in use';
    END IF;
    -- All goes, so nothing has to go before anything else.
    SET LOCAL session_replication_role = replica;
    FOR emptied IN
        SELECT c.oid FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('SCHEMA') AND c.relkind IN ('r', 'p')
            AND NOT c.relispartition AND c.relname <> 'migrations'
    LOOP
        EXECUTE 'DELETE FROM ' || emptied;
    END LOOP;
END $$
