-- Drops every view and function of an earlier version. The functions that check rows are kept: tables depend on them.
DROP VIEW IF EXISTS threads_shown, suspensions_shown;

DO $$
DECLARE
    found regprocedure;
BEGIN
    FOR found IN
        SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
            AND p.proname NOT IN ('run_is_possible', 'commit_is_possible', 'message_is_possible')
    LOOP
        EXECUTE 'DROP FUNCTION ' || found;
    END LOOP;
END $$;
