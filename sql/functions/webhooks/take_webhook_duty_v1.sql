-- Takes on, or keeps, what one process at a time does for all; returns whether the caller has it until the lease is over.
-- A lease of nothing gives it back.
CREATE OR REPLACE FUNCTION projections.take_webhook_duty_v1(p_duty text, p_owner text, p_lease interval)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Most who ask do not get it: they write nothing.
    IF EXISTS (
        SELECT FROM projections.webhook_duties AS d
        WHERE d.duty = p_duty AND d.owner <> p_owner AND d.lease_until > clock_timestamp()
    ) THEN
        RETURN FALSE;
    END IF;
    INSERT INTO projections.webhook_duties AS d (duty, owner, lease_until) VALUES (p_duty, p_owner, clock_timestamp() + p_lease)
    ON CONFLICT (duty) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
    WHERE d.owner = excluded.owner OR d.lease_until <= clock_timestamp();
    RETURN FOUND;
END;
$$;
