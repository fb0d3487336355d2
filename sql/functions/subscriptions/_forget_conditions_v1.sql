-- Removes the conditions that no subscription has any more; returns how many. One that somebody is about to use stays.
CREATE OR REPLACE FUNCTION projections._forget_conditions_v1()
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _id integer;
    _count bigint := 0;
BEGIN
    FOR _id IN
        SELECT c.condition_id FROM projections.conditions AS c
        WHERE NOT EXISTS (SELECT FROM projections.subscriptions AS s WHERE s.condition_id = c.condition_id)
        ORDER BY c.condition_id
        FOR UPDATE SKIP LOCKED
    LOOP
        BEGIN
            DELETE FROM projections.conditions AS c WHERE c.condition_id = _id;
            PERFORM projections._drop_condition_v1(_id);
            _count := _count + 1;
        EXCEPTION
            WHEN foreign_key_violation THEN NULL;  -- somebody has subscribed since it was looked for
        END;
    END LOOP;
    RETURN _count;
END;
$$;
